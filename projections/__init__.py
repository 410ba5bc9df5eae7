"""Folds: convert events to states and decisions.

All code here is pure: no clock, randomness, I/O or logging. Time comes from the event, ids derive from the input, and
results are returned. The same log therefore gives the same decisions, byte for byte, on every engine and at every
replay. `topology` lists the stages for both engines. Imports `trustfold.schemas` only.
"""

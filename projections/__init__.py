"""The folds: events in, states and decisions out.

Everything here is pure. No clock, no randomness, no I/O and no logging: time comes from the event, ids derive
from the input, and what happened is returned. The same log therefore gives the same decisions, byte for byte,
on every engine and at every replay. `topology` is the one list of stages that both engines run. Imports
`trustfold.schemas` only.
"""

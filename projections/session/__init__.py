"""The session stage, keyed by session: calls in flight, behaviour detectors, nudges.

Reads `events`, writes `outcomes` and `nudges`.
"""

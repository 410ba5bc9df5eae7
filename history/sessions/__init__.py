"""One session as a person would tell it, and what stands behind a decision: pure models of events and decisions.

A record is an event or a decision as it stands on the wire, parsed. Pages and the command line show the same models.
"""

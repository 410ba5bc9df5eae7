"""Timeline of a session and evidence of a decision: pure models computed from events and decisions.

A record is a parsed event or decision in the wire format. Pages and the command line show the same models.
"""

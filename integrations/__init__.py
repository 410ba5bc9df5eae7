"""Ready connections to what people run already: the hooks of coding agents; frameworks and protocols beside them.

A connection turns what another program tells into events, and decisions into what that program understands. It knows
the guard and the folds, and no web server; nothing here is imported unless it is used.
"""

"""Integrations: hooks of coding agents, adapters of frameworks, and protocols.

An integration converts another program's reports to events, and decisions to that program's format. It uses the guard
and the folds, but no web server; modules are imported only when used.
"""

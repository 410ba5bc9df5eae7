"""Embedded engine: the same topology on one machine without Kafka.

A log and snapshots in SQLite, and the same processors as the Kafka engine. For single machines, for evaluation and for
replaying recorded events; not a second distributed engine. Runs on the base install.
"""

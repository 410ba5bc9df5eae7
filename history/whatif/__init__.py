"""Replay of a history under other rules."""

"""Replay of a history under other rules, and search for the best thresholds."""

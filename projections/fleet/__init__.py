"""Keyed by user and tool, and by model: promotion across workspaces, behavioural profiles. Reads `standings`."""

"""Coding agents: readers of their own logs, one module an agent."""

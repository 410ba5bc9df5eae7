"""Keyed by workspace and tool, service or model tier: breaker and trust. Reads `outcomes` and `commands`."""

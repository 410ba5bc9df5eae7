"""The tool stage, keyed by workspace and tool, service or model tier. Reads `outcomes` and `commands`."""

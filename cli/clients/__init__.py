"""Clients of the commands: the store of the embedded engine, a running `up` over HTTP, or Kafka."""

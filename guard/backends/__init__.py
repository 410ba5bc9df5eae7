"""Backends of a guard: in this process, a running `trustfold up` over HTTP, or Kafka."""

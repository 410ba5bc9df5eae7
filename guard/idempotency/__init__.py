"""Idempotency: coalesces calls with the same key (docs/design/guard.md#idempotency)."""

"""Idempotency: calls with the same key are one call (docs/design/guard.md#idempotency)."""

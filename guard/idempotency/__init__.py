"""Idempotency: calls with the same key are one call (seed 3 §1.2 and §1.3; design 4, Idempotency)."""

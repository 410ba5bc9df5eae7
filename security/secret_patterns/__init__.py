"""Kinds of secrets: names of fields that hold them, labels before them, and shapes of their values.

A name (`password`, `PGPASSWORD`, `x-api-key`) makes the value after it a secret. A shape (a token with its vendor's
prefix, a private key, a card number with a valid check digit) is a secret wherever it occurs. The shapes follow the
formats that the vendors document; gitleaks and trufflehog have lists of the same formats. See docs/guard.md, Privacy.
"""

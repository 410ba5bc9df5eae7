"""Security: secrets are redacted, files are private to their owner, and foreign texts and requests are harmless.

Every other package may use it; it imports none of them.
"""

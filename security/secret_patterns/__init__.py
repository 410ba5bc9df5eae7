"""Kinds of secrets: names of fields that hold them, labels before them, and shapes of their values.

A name (`password`, `PGPASSWORD`, `x-api-key`) makes the value after it a secret. A shape (a token with its vendor's
prefix, a private key, a card number with a valid check digit) is a secret wherever it occurs. The shapes follow the
formats that the vendors document; gitleaks and trufflehog have lists of the same formats. See docs/guard.md, Privacy.
"""

from .calls import CALLS
from .commands import COMMANDS
from .configuration import CONFIGURATION
from .keys import HASHES, KEYS
from .prose import PROSE
from .tables import TABLES
from .web import WEB

STRUCTURES = (*KEYS, *WEB, *COMMANDS, *CONFIGURATION, *CALLS, *TABLES, *HASHES, *PROSE)
"""Secrets recognised by a header, a command, a URL or a delimiter; earlier ones may contain later ones."""

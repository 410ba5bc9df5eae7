"""Signatures of failures, equal across agents."""

from __future__ import annotations

import re

SIGNATURE_CHARS = 160
"""Maximum length of a signature in characters."""

_QUOTED = re.compile(r"\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|`[^`\n]{1,200}`")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w<])(?:~|\.{1,2})?(?:/[\w.@%+~-]+)+/?|\b[\w.@-]+(?:/[\w.@%+~-]+)+/?")
_NUMBER = re.compile(r"\b[0-9a-f]{12,}\b|(?<![A-Za-z\d])(?:0x[0-9a-fA-F]+|\d+(?:[.,:-]\d+)*)")


def signature(kind: str, code: str, message: str, status: str = "") -> str:
    """Signature of a failure: its message without names, numbers, paths and quotations.

    `Timeout after 30s on /home/ann/x.py` and `Timeout after 45s on /srv/y.py` have one signature.
    """
    text = message.strip().partition("\n")[0][:600]
    for pattern, mark in ((_URL, "<url>"), (_QUOTED, "<text>"), (_PATH, "<path>"), (_NUMBER, "<n>")):
        text = pattern.sub(mark, text)
    head = " ".join(word for word in (kind, code) if word) or ("" if text else status)
    return f"{head}: {text}".strip(": ")[:SIGNATURE_CHARS]

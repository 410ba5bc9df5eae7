"""Which reported errors say nothing about the tool: refusals, cancellations, our own vetoes (design 3).

A user's denial, a sibling cancelled with a failed parallel call and a call that was never made are neutral: neither
success nor failure.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_TYPE_CHARS = 256
"""What is longer is no error type or code, but text; nothing is read in it, and nothing of it is kept in a cache."""

_NOT_LETTERS = re.compile(r"[^a-z0-9]+")
_DENIED = frozenset(
    """userrejected userdenied rejectedbyuser deniedbyuser permissiondeniedbyuser userdeclined declined
    toolusererejected approvaldenied""".split()
)
_CANCELLED = frozenset(
    """siblingerror siblingcancelled aborted aborterror cancelled canceled cancellederror cancellationerror interrupted
    keyboardinterrupt userinterrupt userabort circuitopen toolloop blockedbyguard callnotpermitted""".split()
)
_EXIT_CODE = re.compile(r"exit_?(?:code|status)?[ _:]?(-?[0-9]{1,10})$", re.IGNORECASE)


def neutral_reason(error_type: str) -> str:
    """`denied`, `cancelled`, or empty when the error type names a real failure."""
    return _neutral_reason(error_type) if len(error_type) <= MAX_TYPE_CHARS else ""


@lru_cache(maxsize=2048)
def _neutral_reason(error_type: str) -> str:
    plain = _NOT_LETTERS.sub("", error_type.lower())
    if plain in _DENIED:
        return "denied"
    return "cancelled" if plain in _CANCELLED else ""


def exit_code_of(error_type: str) -> str:
    """Exit code in an error type such as `exit_code_137`, with signals as 128 + n; empty if there is none."""
    return _exit_code_of(error_type) if len(error_type) <= MAX_TYPE_CHARS else ""


@lru_cache(maxsize=2048)
def _exit_code_of(error_type: str) -> str:
    found = _EXIT_CODE.search(error_type)
    return normal_exit_code(int(found.group(1))) if found else ""


def normal_exit_code(code: int) -> str:
    """An exit code as text; a negative one (a signal, as Python reports it) as 128 + n."""
    return str(128 - code if code < 0 else code)

"""Checks of requests and texts from outside: hosts and origins in HTTP headers, and text without control characters.

A browser can be led to a local port by a foreign name that points to this machine (DNS rebinding), or by a page of
another site. `Host` and `Origin` tell.
"""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine and nothing else."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def name_of(host: str) -> str:
    """The name or address in a `Host` header, without its port."""
    return host.rpartition(":")[0] if host.rpartition("]")[2].count(":") else host


def is_foreign(origin: str | None, host: str) -> bool:
    """Whether `Origin` names another site than the one that was asked (`Host`)."""
    return origin is not None and origin.partition("://")[2] != host


_SHOWN = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(9), *range(11, 32), *range(127, 160), 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F),
                 *range(0x2066, 0x206A), 0xFEFF)
}  # fmt: skip
"""Characters that command a terminal or turn the direction of writing, as they are shown; without tab and line end."""


def visible(text: str) -> str:
    """A text that commands no terminal, whoever chose the names in it."""
    return text if text.isascii() and text.isprintable() else text.translate(_SHOWN)

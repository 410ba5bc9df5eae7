"""Checks of requests and texts from outside: hosts and origins in HTTP headers, and text without control characters.

A browser can be directed to a local port by a foreign host name that resolves to this machine (DNS rebinding), or by a
page of another site; `Host` and `Origin` reveal both.
"""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback name or address."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def name_of(host: str) -> str:
    """Return the name or address of a `Host` header, without its port."""
    return host.rpartition(":")[0] if host.rpartition("]")[2].count(":") else host


def is_foreign(origin: str | None, host: str) -> bool:
    """Whether `Origin` names another site than the requested `Host`."""
    return origin is not None and origin.partition("://")[2] != host


# Visible replacements of control and bidirectional characters; tab and line end are kept
_SHOWN = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(9), *range(11, 32), *range(127, 160), 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F),
                 *range(0x2066, 0x206A), 0xFEFF)
}  # fmt: skip


def visible(text: str) -> str:
    """Replace control characters, so that untrusted names cannot send commands to a terminal."""
    return text if text.isascii() and text.isprintable() else text.translate(_SHOWN)

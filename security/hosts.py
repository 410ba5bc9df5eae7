"""Addresses in HTTP headers: whether a request was meant for this machine, and whether a page of another site sent it.

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

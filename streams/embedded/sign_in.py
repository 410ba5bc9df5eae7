"""Browser sign-in: a token is entered once and replaced by a signed cookie.

The cookie is valid for pages only, never for the API, so that pages of other sites cannot use it there. It is signed
with a key of this process: the token cannot be derived from it, and a restart ends all sign-ins.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from .publishers import SenderIdentity

SIGNED_IN_S = 12 * 3600  # Lifetime of a cookie in seconds: a working day
TICKET_S = 300.0  # Lifetime of a ticket in seconds
MAX_TICKETS = 100  # Number of unused tickets kept; beyond it the oldest is forgotten
MAX_ENDED = 10_000  # Number of signed-out cookies kept; only valid ones are stored
FREE_TRIES = 5  # Wrong tokens from one address before it has to wait

# Longest wait in seconds before the next try; users who share an attacker's address can still sign in
LONGEST_WAIT_S = 10.0

FORGOTTEN_S = 600.0  # Seconds after the last wrong token after which an address is forgotten
MAX_ADDRESSES = 1_000  # Number of addresses kept; beyond it the oldest is forgotten


class RequestRole(StrEnum):
    """Role of a request."""

    READER = "reader"
    OPERATOR = "operator"


class RoleTokens(NamedTuple):
    """Tokens of the server."""

    publisher: str = ""  # token that may publish events and read; empty: all programs of this machine may
    operator: str = ""  # token that may do everything; empty: nobody may
    local_orders: bool = False  # every publisher may also send commands
    own: Mapping[str, SenderIdentity] = {}  # publishers that have a token of their own, by token

    def role_of(self, token: str) -> RequestRole | None:
        """Return the role of a token; None if it is unknown."""
        given = token.encode()
        if self.operator and compare_digest(given, self.operator.encode()):
            return RequestRole.OPERATOR
        if not self.publisher or compare_digest(given, self.publisher.encode()):
            return RequestRole.OPERATOR if self.local_orders else RequestRole.READER
        return RequestRole.READER if self._own(token) is not None else None

    def publisher_of(self, token: str) -> SenderIdentity:
        """Return who publishes with a token that has a role."""
        barred = frozenset[str]().union(*(one.workspaces or () for one in self.own.values()))
        return self._own(token) or SenderIdentity(barred=barred)

    def _own(self, token: str) -> SenderIdentity | None:
        given = token.encode()
        return next((one for known, one in self.own.items() if compare_digest(given, known.encode())), None)


class SignIns:
    """Creates and verifies the cookies of one process."""

    def __init__(self, roles: RoleTokens, clock: Callable[[], float] = time.time) -> None:
        """Accept the tokens of `roles`; `clock` returns seconds since 1970."""
        self._roles = roles
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._ended: deque[str] = deque(maxlen=MAX_ENDED)
        self._missed: dict[str, tuple[int, float]] = {}
        self._tickets: dict[str, tuple[RequestRole, float]] = {}

    @property
    def possible(self) -> bool:
        """Whether a sign-in token is configured."""
        return bool(self._roles.publisher or self._roles.operator)

    @property
    def has_operator(self) -> bool:
        """Whether an operator's token is configured."""
        return bool(self._roles.operator)

    def wait_s(self, address: str) -> float:
        """Return the seconds until the next token of an address is checked; 0 for now."""
        times, at = self._missed.get(address, (0, 0.0))
        gone = self._clock() - at
        if times < FREE_TRIES or gone >= FORGOTTEN_S:
            return 0.0
        return max(min(2.0 ** (times - FREE_TRIES), LONGEST_WAIT_S) - gone, 0.0)

    def missed(self, address: str) -> None:
        """Record a wrong token from an address."""
        now = self._clock()
        times, at = self._missed.pop(address, (0, now))
        self._missed[address] = (times + 1 if now - at < FORGOTTEN_S else 1), now
        if len(self._missed) > MAX_ADDRESSES:
            del self._missed[next(iter(self._missed))]

    def cookie_for(self, token: str) -> str | None:
        """Return the cookie value for a token; None if the token is unknown."""
        role = self._roles.role_of(token)
        if role is None or (role is RequestRole.READER and not self._roles.publisher):
            return None  # without a publisher token everybody may read
        return self._cookie_of(role)

    def ticket_for(self, role: RequestRole) -> str:
        """Return a text that signs in once, in a browser that a command opens."""
        ticket = secrets.token_urlsafe(24)
        self._tickets[ticket] = role, self._clock() + TICKET_S
        if len(self._tickets) > MAX_TICKETS:
            del self._tickets[next(iter(self._tickets))]
        return ticket

    def cookie_for_ticket(self, ticket: str) -> str | None:
        """Return the cookie value for a ticket, and end the ticket; None if it is unknown, used or expired."""
        role, until = self._tickets.pop(ticket, (RequestRole.READER, 0.0))
        return self._cookie_of(role) if until > self._clock() else None

    def _cookie_of(self, role: RequestRole) -> str:
        body = f"{role}.{int(self._clock()) + SIGNED_IN_S}.{secrets.token_urlsafe(12)}"
        return f"{body}.{self._signature('cookie', body)}"

    def role_of(self, cookie: str) -> RequestRole | None:
        """Return the role of a cookie; None if it is invalid or expired."""
        body, _, signature = cookie.rpartition(".")
        if not compare_digest(signature.encode(), self._signature("cookie", body).encode()) or cookie in self._ended:
            return None
        role, until, _ = body.split(".")
        return RequestRole(role) if int(until) > self._clock() else None

    def end(self, cookie: str) -> None:
        """Sign out: invalidate the cookie and all its copies."""
        if self.role_of(cookie) is not None:
            self._ended.append(cookie)

    def form_token(self, cookie: str) -> str:
        """Return the CSRF token of a form for the holder of this cookie (or none)."""
        return self._signature("form", cookie)

    def _signature(self, purpose: str, text: str) -> str:
        return blake2b(text.encode(), key=self._key, digest_size=16, person=purpose.encode()).hexdigest()


def cookie_name(host: str) -> str:
    """Return the cookie's name; it contains the port because browsers share cookies between ports of a host."""
    port = host.rpartition(":")[2]
    return f"trustfold_{port}" if port.isdecimal() else "trustfold"

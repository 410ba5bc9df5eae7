"""Signing in with a browser: a token is given once, and a signed cookie stands for it afterwards.

The cookie counts for pages alone, never for the API, so that no page of another site can use it there. Its signature is
made with a key of this process: nobody can work out a token from it, and a restart signs everybody out.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

SIGNED_IN_S = 12 * 3600
"""Seconds that a cookie counts: a working day."""


MAX_ENDED = 10_000
"""Cookies remembered that somebody has signed out with; only real ones are."""


FREE_TRIES = 5
"""Wrong tokens that an address may give before it has to wait."""

LONGEST_WAIT_S = 10.0
"""Longest wait for the next try: who shares an address with somebody who guesses must still get in."""

FORGOTTEN_S = 600.0
"""Seconds after the last wrong token after which an address is as good as any other."""

MAX_ADDRESSES = 1_000
"""Addresses remembered; of more the oldest is forgotten."""


class Role(StrEnum):
    """What whoever asks may do."""

    READER = "reader"
    OPERATOR = "operator"


class Roles(NamedTuple):
    """Tokens that the server asks for.

    Attributes:
        publisher: token that may publish events and read; empty: everybody on this machine may.
        operator: token that may do everything; empty: nobody has it.
        local_orders: whoever may publish may give orders, too.
    """

    publisher: str = ""
    operator: str = ""
    local_orders: bool = False

    def role_of(self, token: str) -> Role | None:
        """What a token allows; None for an unknown one."""
        given = token.encode()
        if self.operator and compare_digest(given, self.operator.encode()):
            return Role.OPERATOR
        if not self.publisher or compare_digest(given, self.publisher.encode()):
            return Role.OPERATOR if self.local_orders else Role.READER
        return None


class SignIns:
    """Makes and checks the cookies of one process."""

    def __init__(self, roles: Roles, clock: Callable[[], float] = time.time) -> None:
        """Sign in with the tokens of `roles`; `clock` gives seconds since 1970."""
        self._roles = roles
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._ended: deque[str] = deque(maxlen=MAX_ENDED)
        self._missed: dict[str, tuple[int, float]] = {}

    @property
    def possible(self) -> bool:
        """Whether there is a token to sign in with."""
        return bool(self._roles.publisher or self._roles.operator)

    @property
    def has_operator(self) -> bool:
        """Whether there is an operator's token."""
        return bool(self._roles.operator)

    def wait_s(self, address: str) -> float:
        """Seconds until a token from an address is looked at again; 0 for now."""
        times, at = self._missed.get(address, (0, 0.0))
        gone = self._clock() - at
        if times < FREE_TRIES or gone >= FORGOTTEN_S:
            return 0.0
        return max(min(2.0 ** (times - FREE_TRIES), LONGEST_WAIT_S) - gone, 0.0)

    def missed(self, address: str) -> None:
        """A token from an address was wrong."""
        now = self._clock()
        times, at = self._missed.pop(address, (0, now))
        self._missed[address] = (times + 1 if now - at < FORGOTTEN_S else 1), now
        if len(self._missed) > MAX_ADDRESSES:
            del self._missed[next(iter(self._missed))]

    def cookie_for(self, token: str) -> str | None:
        """Value of the cookie that stands for a token; None for a token that is not one of the server's."""
        role = self._roles.role_of(token)
        if role is None or (role is Role.READER and not self._roles.publisher):
            return None  # everybody may read here, whatever the token
        body = f"{role}.{int(self._clock()) + SIGNED_IN_S}.{secrets.token_urlsafe(12)}"
        return f"{body}.{self._signature('cookie', body)}"

    def role_of(self, cookie: str) -> Role | None:
        """What a cookie allows; None for one that is not ours or whose time is over."""
        body, _, signature = cookie.rpartition(".")
        if not compare_digest(signature.encode(), self._signature("cookie", body).encode()) or cookie in self._ended:
            return None
        role, until, _ = body.split(".")
        return Role(role) if int(until) > self._clock() else None

    def end(self, cookie: str) -> None:
        """Sign out: the cookie counts no more, whoever has a copy of it."""
        if self.role_of(cookie) is not None:
            self._ended.append(cookie)

    def form_token(self, cookie: str) -> str:
        """What a form must carry to be one of our pages, seen by whoever has this cookie (or none)."""
        return self._signature("form", cookie)

    def _signature(self, purpose: str, text: str) -> str:
        return blake2b(text.encode(), key=self._key, digest_size=16, person=purpose.encode()).hexdigest()


def cookie_name(host: str) -> str:
    """Name of the cookie: browsers share cookies between the ports of a host, so the port is part of it."""
    port = host.rpartition(":")[2]
    return f"trustfold_{port}" if port.isdecimal() else "trustfold"

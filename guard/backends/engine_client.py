"""HTTP client of a running `trustfold up`, for guards and commands (docs/decisions/0093-one-http-client.md).

The library is urllib3. Connections are kept open and reused; proxies of the environment are ignored, redirects are not
followed, and no request is repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import orjson

from ...errors import ConfigError, TargetUnreachable, TookTooLong, TrustfoldError

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, HTTPConnectionPool

MAX_IDLE = 4  # Number of unused connections kept open

READ_BYTES = 65_536

# Statuses that say that the body, or its sender, is refused: the same request would most likely be refused again
REFUSED_CONTENT = frozenset({400, 403, 413, 415, 422})

Method = Literal["GET", "POST"]


class EngineRefused(TrustfoldError):
    """The engine answered with an error."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status  # HTTP status: from 300, or 200 for an answer that is no engine's

    @property
    def too_large(self) -> bool:
        """Whether the body exceeds what the server, or a proxy before it, takes at once."""
        return self.status == 413

    @property
    def temporary(self) -> bool:
        """Whether the same request may succeed later: the server, a proxy or the token is at fault, not the body."""
        return self.status not in REFUSED_CONTENT


class EngineStream:
    """Open response whose body has one JSON document a line."""

    def __init__(self, response: BaseHTTPResponse, name: str, silence_s: float) -> None:
        """Read an open response of the engine `name`."""
        self._response = response
        self._name = name
        self._silence_s = silence_s

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines as they arrive, without the empty ones (heartbeats), until the response ends."""
        begun: list[bytes] = []  # parts of a line whose end has not arrived; joined once, as lines may be long
        with _errors(self._name, self._silence_s):
            for part in self._response.stream(READ_BYTES):
                *ends, rest = part.split(b"\n")
                for end in ends:
                    if (line := b"".join((*begun, end))).strip():
                        yield line
                    begun.clear()
                begun.append(rest)

    def interrupt(self) -> None:
        """End the iteration in another thread."""
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # it has ended already
            self._response.shutdown()

    def close(self) -> None:
        """Close the connection."""
        self._response.close()


class EngineClient:
    """Client of one engine; thread-safe."""

    def __init__(self, address: str, timeout_s: float) -> None:
        """Create a client; it connects at the first request.

        Args:
            address: `http://host:port` or `https://host:port`, with a path if another server is in front of the engine.
            timeout_s: seconds that connecting, and each wait for data, may take.
        """
        try:
            parts = urlsplit(address)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("no http")  # noqa: TRY301 - one message for all that is malformed
            # address without path, as messages show it
            self.name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
            self._path = parts.path.rstrip("/")
            self._timeout_s = timeout_s
            self._pool = self._new_pool()
        except ValueError as error:
            raise ConfigError(f"{address!r} is no address; use http://127.0.0.1:8321") from error

    def _new_pool(self) -> HTTPConnectionPool:
        import urllib3  # takes 30 ms, which commands without a server save

        return urllib3.connection_from_url(self.name, maxsize=MAX_IDLE, retries=False)

    def after_fork(self) -> None:
        """Reconnect in a child process; open connections belong to the parent."""
        self._pool = self._new_pool()

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()

    def request(self, method: Method, path: str, body: bytes | None = None, *, token: str = "") -> bytes:
        """Return the body of the answer.

        Args:
            method: `GET` or `POST`.
            path: path with its query.
            body: one JSON document a line.
            token: bearer token; empty for none.

        Raises:
            TargetUnreachable: nothing answers, or the connection was lost.
            TookTooLong: no answer in time.
            EngineRefused: the answer is an error.
            ConfigError: no header can carry the token.
        """
        return self._answer(method, path, body, token, self._timeout_s).data

    def stream(self, path: str, *, token: str = "", silence_s: float) -> EngineStream:
        """Open a response that is read line by line; reading fails after `silence_s` seconds without data."""
        response = self._answer("GET", path, None, token, silence_s, preload_content=False)
        return EngineStream(response, self.name, silence_s)

    def _answer(
        self, method: Method, path: str, body: bytes | None, token: str, timeout_s: float, **options: Any
    ) -> BaseHTTPResponse:
        headers = {"Content-Type": "application/x-ndjson"}
        if token := header_token(token):
            headers["Authorization"] = f"Bearer {token}"
        with _errors(self.name, timeout_s):
            response = self._pool.urlopen(
                method, self._path + path, body, headers, redirect=False, timeout=timeout_s, **options
            )
            if response.status >= 300:
                message = f"{self.name} refused ({response.status}): {_reason(response.data)}"
                raise EngineRefused(message, response.status)
        return response


def header_token(token: str) -> str:
    """Return a token without the white space around it: files of secrets end with a line break."""
    token = token.strip()
    if not token.isprintable() or not token.isascii():
        raise ConfigError(
            "the token has characters that an HTTP header cannot carry; set TRUSTFOLD_TOKEN, or for orders "
            "TRUSTFOLD_OPERATOR_TOKEN, to letters, digits and punctuation of ASCII in one line"
        )
    return token


@contextlib.contextmanager
def _errors(name: str, timeout_s: float) -> Iterator[None]:
    """Turn errors of urllib3 into trustfold's, which say what to do next."""
    from urllib3 import exceptions

    try:
        yield
    except exceptions.HTTPError as error:
        cause = error.__cause__ or next((one for one in error.args if isinstance(one, Exception)), error)
        if isinstance(cause, TimeoutError | exceptions.ReadTimeoutError):
            raise TookTooLong(f"{name} did not answer within {timeout_s:.0f} s; look at its log") from error
        raise TargetUnreachable(f"nothing answers at {name} ({cause}); is `trustfold up` running there?") from error


def _reason(answer: bytes) -> str:
    """Return the engine's own words in an answer that is an error."""
    try:
        return str(orjson.loads(answer)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return answer[:200].decode(errors="replace").strip() or "no reason given"

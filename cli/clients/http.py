"""HTTP client of a running `up`."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import orjson

from ...errors import ConfigError, TrustfoldError
from ...rules.levels import Level
from ...rules.rules import Rules
from ...schemas.codec import encode
from ...schemas.commands import Command
from ...schemas.events import SessionSettingsChanged
from ...schemas.settings import SettingsChanged, SettingsOverrides
from ..render import TookTooLong, Unreachable
from .base import Known, Letter, Overview, Record, Reloaded, Republished, Who, state_records, with_states

TIMEOUT_S = 30.0
"""The server folds the whole body before it answers, so a large body takes long."""

PAGE = 10_000


class HttpTarget:
    """Target that is a server, over HTTP."""

    def __init__(self, url: str, token: str = "", operator_token: str = "") -> None:
        """Connect to the server at `url`, `http://host:port`; orders are sent with the operator's token.

        Raises:
            ConfigError: `url` is not an http address.
        """
        parts = urlsplit(url if "//" in url else f"//{url}", scheme="http")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(f"{url!r} is not an address; give it as http://127.0.0.1:8321")
        self._parts = parts
        self._token = token
        self._operator_token = operator_token

    @property
    def name(self) -> str:
        """Name of the target in messages."""
        return f"{self._parts.scheme}://{self._parts.netloc}"

    def overview(self) -> Overview:
        """Public state of every key that differs from its default."""
        body = self._json("GET", "/v1/state")
        return Overview(state_records(body["states"]), body["recovery_mode"], body.get("rules_fault"))

    def history(self, limit: int) -> list[Record]:
        """Latest decisions about tools, oldest first."""
        found: list[Record] = []
        after = 0
        while page := self._lines("/v1/decisions", topics="escalations,breakers", after=after, limit=PAGE):
            after = page[-1]["offset"]
            found = [*found, *(one["value"] for one in page)][-limit:]
        return found

    def session(self, session_id: str) -> Record | None:
        """The timeline of a session."""
        found = self._json("GET", f"/v1/sessions/{quote(session_id, safe='')}")
        return found if found["items"] else None

    def order(self, commands: Sequence[Command]) -> list[Record]:
        """Send commands; returns the decisions they caused.

        Raises:
            TrustfoldError: the server rejected one of them.
        """
        answer = self.post("/v1/commands", b"\n".join(encode(command) for command in commands))
        if answer["dead_letters"]:
            raise TrustfoldError(f"{self.name} did not take the order: {answer['faults'][0]['message']}")
        decisions: list[Record] = answer["decisions"]
        return decisions

    def settings(self, who: Who) -> Known:
        """Settings of each level for a workspace, user and session."""
        body = self._json("GET", f"/v1/settings?{urlencode(who._asdict())}")
        levels = {Level(level): msgspec.convert(set_, SettingsOverrides) for level, set_ in body["levels"].items()}
        return Known(msgspec.convert(body["rules"], Rules), levels, fault=body["rules_fault"])

    def save(self, changes: Sequence[SettingsChanged]) -> None:
        """Replace the settings of scopes."""
        self.submit("settings", [encode(change) for change in changes])

    def configure_sessions(self, events: Sequence[SessionSettingsChanged]) -> None:
        """Replace the settings of sessions."""
        self.submit("events", [encode(event) for event in events])

    def submit(self, topic: str, values: Sequence[bytes]) -> None:
        """Post records to a topic.

        Raises:
            TrustfoldError: the server rejected one of them.
        """
        answer = self.post(f"/v1/{topic}", b"\n".join(values))
        if answer["dead_letters"]:
            fault = answer["faults"][0]
            raise TrustfoldError(f"{self.name} did not take it: {fault['path']}: {fault['message']}")

    def reload(self) -> Reloaded:
        """Make the server reload its rules and policies."""
        body = self.post("/v1/reload", b"")
        return Reloaded(body["reloaded"], body["files"], body["rules_fault"])

    def dead_letters(self, *, everything: bool) -> list[Letter]:
        """Dead letters, oldest first."""
        letters: list[Letter] = []
        after = 0
        while page := self._lines("/v1/dead-letters", after=after, limit=PAGE, all=str(everything).lower()):
            after = page[-1]["offset"]
            letters += [Letter(str(one["offset"]), one["value"]) for one in page]
        return with_states(letters, self.dead_letters(everything=False)) if everything else letters

    def republish(self, letters: Sequence[Letter]) -> Republished:
        """Fold the records of dead letters again."""
        body = orjson.dumps({"offsets": [int(letter.ref) for letter in letters]})
        return Republished(len(letters), int(self.post("/v1/dead-letters/republish", body)["dead_letters"]))

    def hooks(self) -> Record:
        """Agents whose hooks have called the server, their sessions, and the answers they were given."""
        return self._json("GET", "/v1/hooks")

    def post(self, path: str, body: bytes) -> Record:
        """Post NDJSON; returns the answer.

        Raises:
            Unreachable: no server answers.
            TookTooLong: no answer in time.
            TrustfoldError: the server refused; its reason is the message.
        """
        return self._json("POST", path, body)

    def _lines(self, path: str, **query: Any) -> list[Record]:
        return [orjson.loads(line) for line in self._request("GET", f"{path}?{urlencode(query)}").splitlines() if line]

    def _json(self, method: str, path: str, body: bytes | None = None) -> Record:
        answer: Record = orjson.loads(self._request(method, path, body))
        return answer

    def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        headers = {"Content-Type": "application/x-ndjson"}
        # The operator's token permits every request, so events that change settings use it too.
        token = (self._operator_token if method == "POST" else "") or self._token or self._operator_token
        if token:
            headers["Authorization"] = f"Bearer {token}"
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
            response = connection.getresponse()
            answer = response.read()
        except TimeoutError as error:
            raise TookTooLong(f"{self.name} did not answer within {TIMEOUT_S:.0f} s; look at its log") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"nothing answers at {self.name} ({error}); is `trustfold up` running there?") from error
        finally:
            connection.close()
        if response.status >= 300:
            raise TrustfoldError(f"{self.name} refused ({response.status}): {_reason(answer)}")
        return answer


def _reason(answer: bytes) -> str:
    try:
        return str(orjson.loads(answer)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return answer[:200].decode(errors="replace").strip() or "no reason given"

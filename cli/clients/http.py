"""HTTP client of a running `up`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import orjson

from ...errors import TrustfoldError
from ...guard.backends.engine_client import EngineClient, Method
from ...rules.levels import Level
from ...rules.rules import Rules
from ...schemas.codec import encode
from ...schemas.commands import Command
from ...schemas.events import SessionSettingsChanged
from ...schemas.session_timeline import SessionTimeline
from ...schemas.settings import SettingsChanged, SettingsOverrides
from .base import (
    DecisionRecord,
    KnownSettings,
    Letter,
    Overview,
    Record,
    Reloaded,
    Republished,
    SettingsOwner,
    decision_records,
    state_records,
    with_states,
)

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
        self._client = EngineClient(url if "//" in url else f"http://{url}", TIMEOUT_S)
        self._token = token
        self._operator_token = operator_token

    @property
    def name(self) -> str:
        """Name of the target in messages."""
        return self._client.name

    def overview(self) -> Overview:
        """Public state of every key that differs from its default."""
        body = self._json("GET", "/v1/state")
        states = body.get("states")
        if not isinstance(states, list) or not all(isinstance(one, dict) for one in states):
            raise self._not_ours("it gave no list of states")
        return Overview(state_records(states), body.get("recovery_mode"), body.get("rules_fault"))

    def history(self, limit: int) -> list[DecisionRecord]:
        """Latest decisions about tools, oldest first."""
        found: list[Record] = []
        after = 0
        while page := self._lines("/v1/decisions", topics="escalations,breakers", after=after, limit=PAGE):
            after = page[-1]["offset"]
            found = [*found, *(one["value"] for one in page)][-limit:]
        return decision_records(found)

    def session(self, session_id: str) -> Record | None:
        """The timeline of a session."""
        found = self._json("GET", f"/v1/sessions/{quote(session_id, safe='')}")
        try:
            msgspec.convert(found, SessionTimeline)
        except msgspec.ValidationError as error:
            raise self._not_ours(f"its session cannot be read: {error}") from error
        return found if found["items"] else None

    def order(self, commands: Sequence[Command]) -> list[DecisionRecord]:
        """Send commands; returns the decisions they caused.

        Raises:
            TrustfoldError: the server rejected one of them.
        """
        answer = self.post("/v1/commands", b"\n".join(encode(command) for command in commands))
        if answer["dead_letters"]:
            raise TrustfoldError(f"{self.name} did not take the order: {answer['faults'][0]['message']}")
        return decision_records(answer["decisions"])

    def settings(self, who: SettingsOwner) -> KnownSettings:
        """Settings of each level for a workspace, user and session."""
        body = self._json("GET", f"/v1/settings?{urlencode(who._asdict())}")
        levels = {Level(level): msgspec.convert(set_, SettingsOverrides) for level, set_ in body["levels"].items()}
        return KnownSettings(msgspec.convert(body["rules"], Rules), levels, fault=body["rules_fault"])

    def save(self, changes: Sequence[SettingsChanged]) -> None:
        """Replace the settings of scopes."""
        self.post_records("settings", [encode(change) for change in changes])

    def save_sessions(self, events: Sequence[SessionSettingsChanged]) -> None:
        """Replace the settings of sessions."""
        self.post_records("events", [encode(event) for event in events])

    def post_records(self, topic: str, values: Sequence[bytes]) -> None:
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
        lines = [self._object(line) for line in self._request("GET", f"{path}?{urlencode(query)}").splitlines() if line]
        if not all(isinstance(one.get("offset"), int) and isinstance(one.get("value"), dict) for one in lines):
            raise self._not_ours("it gave lines that are no records")
        return lines

    def _json(self, method: Method, path: str, body: bytes | None = None) -> Record:
        return self._object(self._request(method, path, body))

    def _object(self, text: bytes) -> Record:
        try:
            answer = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise self._not_ours("it gave no JSON") from error
        if not isinstance(answer, dict):
            raise self._not_ours("it gave no JSON object")
        return answer

    def _not_ours(self, why: str) -> TrustfoldError:
        return TrustfoldError(f"what answers at {self.name} is not `trustfold up`, or another version of it: {why}")

    def _request(self, method: Method, path: str, body: bytes | None = None) -> bytes:
        # The operator's token permits every request, so events that change settings use it too.
        token = (self._operator_token if method == "POST" else "") or self._token or self._operator_token
        return self._client.request(method, path, body, token=token)

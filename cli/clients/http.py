"""HTTP client of a running `up`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import orjson

from ...errors import TargetUnreachable, TookTooLong, TrustfoldError
from ...guard.backends.engine_client import EngineClient, EngineRefused, Method
from ...guard.backends.engine_process import ANSWER_S
from ...projections.incidents import ranked
from ...schemas.codec import encode
from ...schemas.commands import Command
from ...schemas.events import SessionSettingsChanged
from ...schemas.session_timeline import SessionTimeline
from ...schemas.settings import SettingsChanged
from .client import (
    NO_RIGHTS,
    DecisionRecord,
    KnownSettings,
    ListedLetter,
    Record,
    ReloadResult,
    RepublishResult,
    ServerIdentity,
    ServerInfo,
    SettingsOwner,
    StateOverview,
    TargetRights,
    decision_records,
    state_records,
    with_states,
)

TIMEOUT_S = 30.0  # The server folds the whole body before it answers, so a large body takes long

PAGE = 10_000


T = TypeVar("T")


class _RecordFault(msgspec.Struct):
    """Reason why a record was rejected."""

    path: str
    message: str


class PublishAnswer(msgspec.Struct):
    """Answer to posted records: numbers of folded and of rejected ones, and the first reasons of rejections."""

    accepted: int
    dead_letters: int
    faults: list[_RecordFault] = []
    decisions: list[Record] = []  # of orders: what they caused

    @property
    def fault(self) -> _RecordFault:
        """First reason."""
        return next(iter(self.faults), _RecordFault("", "it gave no reason; `trustfold dead-letters list` may"))


class HookReport(msgspec.Struct):
    """Hooks that a server has answered."""

    agents: dict[str, Record]  # number of hooks (`hooks`) and time of the last one (`last_time`), by agent
    sessions: list[str]  # ids of their sessions
    said: list[Record]  # latest answers
    paused: dict[str, str] = {}  # reason of the pause by session; empty for one that works on
    faults: dict[str, int] = {}  # number of hooks that were not judged, by reason


class HttpTarget:
    """Target that is a server, over HTTP."""

    def __init__(self, url: str, rights: TargetRights = NO_RIGHTS, timeout_s: float = TIMEOUT_S) -> None:
        """Connect to the server at `url`, `http://host:port`; orders are sent with the operator's token.

        Raises:
            ConfigError: `url` is not an http address.
        """
        self._client = EngineClient(url if "//" in url else f"http://{url}", timeout_s)
        self._rights = rights

    @property
    def name(self) -> str:
        """Name of the target in messages."""
        return self._client.name

    def server(self) -> ServerInfo:
        """The server, with the agents that it has heard; at most a few seconds late."""
        quick = HttpTarget(self.name, self._rights, ANSWER_S)
        try:
            about, report = quick.about(), quick.hooks()
        except (TargetUnreachable, TookTooLong):
            return ServerInfo(self.name)
        except TrustfoldError:  # without its token, or of an earlier version
            return ServerInfo(self.name, ServerIdentity())
        return ServerInfo(self.name, about, report.agents, report.said, report.paused)

    def overview(self) -> StateOverview:
        """Public state of every key that differs from its default."""
        body = self._json("GET", "/v1/state")
        states = body.get("states")
        if not isinstance(states, list) or not all(isinstance(one, dict) for one in states):
            raise self._not_ours("it gave no list of states")
        return StateOverview(state_records(states), body.get("recovery_mode"), body.get("rules_fault"))

    def incidents(self) -> list[Record]:
        """Incidents of the present, most urgent first; a server of an earlier version knows only those of states."""
        try:
            found: list[Record] = self._json("GET", "/v1/incidents")["incidents"]
        except TrustfoldError:
            return [one.record() for one in ranked(self.overview().states, (), time.time_ns() // 1_000_000)]
        return found

    def webhook_fault(self) -> str:
        """Why the server's webhook did not accept the latest notice; empty if it did, or there is none."""
        return str(self._json("GET", "/v1/incidents").get("webhook", ""))

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
        self._as(SessionTimeline, found)
        return found if found["items"] else None

    def order(self, commands: Sequence[Command]) -> list[DecisionRecord]:
        """Send commands; returns the decisions they caused."""
        self._rights.check_order()
        answer = self._post(PublishAnswer, "/v1/commands", b"\n".join(encode(command) for command in commands))
        if answer.dead_letters:
            raise TrustfoldError(f"{self.name} did not take the order: {answer.fault.message}")
        return decision_records(answer.decisions)

    def settings(self, who: SettingsOwner) -> KnownSettings:
        """Settings of each level for a workspace, user and session."""
        return self._as(KnownSettings, self._json("GET", f"/v1/settings?{urlencode(who._asdict())}"))

    def save(self, changes: Sequence[SettingsChanged]) -> None:
        """Replace the settings of scopes."""
        self.post_records("settings", [encode(change) for change in changes])

    def save_sessions(self, events: Sequence[SessionSettingsChanged]) -> None:
        """Replace the settings of sessions."""
        self.post_records("events", [encode(event) for event in events])

    def post_records(self, topic: str, values: Sequence[bytes]) -> None:
        """Post records to a topic."""
        self._rights.check_order()
        answer = self.publish(topic, b"\n".join(values))
        if answer.dead_letters:
            raise TrustfoldError(f"{self.name} did not take it: {answer.fault.path}: {answer.fault.message}")

    def reload(self) -> ReloadResult:
        """Make the server reload its rules and policies."""
        self._rights.check_order()
        return self._post(ReloadResult, "/v1/reload", b"")

    def dead_letters(self, *, everything: bool) -> list[ListedLetter]:
        """Dead letters, oldest first."""
        letters: list[ListedLetter] = []
        after = 0
        while page := self._lines("/v1/dead-letters", after=after, limit=PAGE, all=str(everything).lower()):
            after = page[-1]["offset"]
            letters += [ListedLetter(str(one["offset"]), one["value"]) for one in page]
        return with_states(letters, self.dead_letters(everything=False)) if everything else letters

    def republish(self, letters: Sequence[ListedLetter]) -> RepublishResult:
        """Fold the records of dead letters again."""
        self._rights.check_order()
        body = orjson.dumps({"offsets": [int(letter.ref) for letter in letters]})
        return self._post(RepublishResult, "/v1/dead-letters/republish", body)

    def hooks(self) -> HookReport:
        """Agents whose hooks have called the server, their sessions, and the answers they were given."""
        return self._as(HookReport, self._json("GET", "/v1/hooks"))

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    def about(self) -> ServerIdentity:
        """Which server answers."""
        try:
            return self._as(ServerIdentity, self._json("GET", "/v1/server"))
        except EngineRefused as refused:
            if refused.status != 404:
                raise
            return ServerIdentity()

    def dashboard(self) -> str:
        """Address of the dashboard, which signs a browser in once with the rights of this target."""
        try:
            ticket = self._json("POST", "/v1/tickets").get("ticket")
        except EngineRefused as refused:
            if refused.status != 404:
                raise
            ticket = None
        return f"{self.name}/sign-in?{urlencode({'ticket': ticket})}" if ticket else f"{self.name}/"

    def publish(self, topic: str, body: bytes) -> PublishAnswer:
        """Post records of a topic, one a line.

        Raises:
            TargetUnreachable: no server answers.
            TookTooLong: no answer in time.
            TrustfoldError: the server refused; its reason is the message.
        """
        return self._post(PublishAnswer, f"/v1/{topic}", body)

    def _post(self, kind: type[T], path: str, body: bytes) -> T:
        return self._as(kind, self._json("POST", path, body))

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

    def _as(self, kind: type[T], answer: Record) -> T:
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as error:
            raise self._not_ours(f"its answer cannot be read: {error}") from error

    def _not_ours(self, why: str) -> TrustfoldError:
        return TrustfoldError(f"what answers at {self.name} is not `trustfold up`, or another version of it: {why}")

    def _request(self, method: Method, path: str, body: bytes | None = None) -> bytes:
        # The operator's token permits every request, so events that change settings use it too.
        publisher, operator, _ = self._rights
        token = (operator if method == "POST" else "") or publisher or operator
        return self._client.request(method, path, body, token=token)

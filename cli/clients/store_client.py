"""Client of the embedded engine's store: reads it beside a running engine, writes it if none runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import orjson

from ...errors import TargetUnreachable, TookTooLong, TrustfoldError
from ...guard.backends.engine_process import answers, running_at
from ...schemas.codec import encode
from ...schemas.commands import Command
from ...schemas.events import SessionSettingsChanged
from ...schemas.settings import SettingsChanged
from ...streams.embedded.engine import CommitReceipt, EmbeddedEngine, SubmitRequest, source_in_force
from ...streams.embedded.store import StoreLocked
from ...streams.embedded.store_views import DEAD_LETTERS, MAX_PAGE, StoreViews
from .client import (
    DecisionRecord,
    KnownSettings,
    ListedLetter,
    Record,
    ReloadResult,
    RepublishResult,
    ServerInfo,
    SettingsOwner,
    StateOverview,
    TargetRights,
    decision_records,
    state_records,
    with_states,
)
from .http import HttpTarget

TOOL_TOPICS = ("escalations", "breakers")  # Decisions about tools
MAX_EVENTS = 50_000  # Number of a session's latest events that are read


class StoreTarget:
    """Target that is a store; if an engine runs on it, orders go to that engine's address."""

    def __init__(self, path: Path, rights: TargetRights) -> None:
        """Use the store at `path` with these rights; the tokens are for an engine that runs on it."""
        self._path = path
        self._rights = rights

    @property
    def name(self) -> str:
        """Name of the target in messages."""
        return str(self._path)

    def dashboard(self) -> str:
        """Address of the dashboard of the engine that runs on the store."""
        return self._running().dashboard()

    def _running(self) -> HttpTarget:
        """The engine that runs on the store."""
        found = running_at(self._path)
        if found is None or not answers(found[1]):
            raise TargetUnreachable(f"no server runs on {self.name}; start this user's with `trustfold up --detach`")
        return HttpTarget(found[1], self._rights)

    def server(self) -> ServerInfo | None:
        """The server that runs over the store."""
        found = running_at(self._path)
        return HttpTarget(found[1], self._rights).server() if found else None

    def overview(self) -> StateOverview:
        """Public state of every key that differs from its default."""
        with closing(StoreViews.open(self._path)) as views:
            mode = source_in_force(views).rules.trust.recovery_mode
            records = state_records(orjson.loads(value) for value in views.states().values())
            return StateOverview(records, str(mode), _fault(views))

    def incidents(self) -> list[Record]:
        """Incidents of the present, most urgent first."""
        from ...web.dashboard.current_state import StateBoard, read_store

        board = StateBoard()
        with closing(StoreViews.open(self._path)) as views:
            read_store(board, views)
        return [one.record() for one in board.incidents(_now())]

    def history(self, limit: int) -> list[DecisionRecord]:
        """Latest decisions about tools, oldest first."""
        found: list[Record] = []
        with closing(StoreViews.open(self._path)) as views:
            after = 0
            while page := views.decisions(TOOL_TOPICS, after=after, limit=MAX_PAGE):
                after = page[-1].offset
                found = [*found, *(orjson.loads(one.output.value or b"{}") for one in page)][-limit:]
        return decision_records(found)

    def session(self, session_id: str) -> Record | None:
        """The timeline of a session."""
        from ...history.sessions.json_view import timeline_document
        from ...history.sessions.timeline import TimedDecision, millis, timeline
        from ...history.sessions.timeline_calls import by_cause

        with closing(StoreViews.open(self._path)) as views:
            stored = [*views.session_events(session_id, limit=MAX_EVENTS), *views.appended_events(session_id)]
            events = [orjson.loads(one.value) for one in stored]
            if not events:
                return None
            times = [millis(one["time"]) for one in events]
            decisions = [*views.session_decisions(session_id), *views.circuit_changes(min(times), max(times))]
            found = timeline(
                session_id,
                events,
                [TimedDecision(orjson.loads(one.value), one.arrived_ms) for one in sorted(decisions)],
                rules=source_in_force(views).rules,
                records=by_cause(views.session_calls(session_id, limit=MAX_EVENTS)),
                left_out=len(stored) >= MAX_EVENTS,
            )
        return timeline_document(found)

    def order(self, commands: Sequence[Command]) -> list[DecisionRecord]:
        """Fold commands into the store, or send them to the engine that runs on it."""
        self._rights.check_order()
        try:
            with EmbeddedEngine.open(self._path) as engine:
                request = SubmitRequest("commands", [encode(command) for command in commands])
                (receipt,) = engine.submit([request], arrived_ms=_now())
        except StoreLocked as taken:
            return self._engine_of(taken).order(commands)
        self._check_taken(receipt)
        outputs = [out.value for out in receipt.outputs if out.topic in TOOL_TOPICS and out.value]
        return decision_records(map(orjson.loads, outputs))

    def settings(self, who: SettingsOwner) -> KnownSettings:
        """Settings of each level for a workspace, user and session, as of the last fold of the store."""
        with closing(StoreViews.open(self._path)) as views:
            source = source_in_force(views)
            levels = source.levels(who.workspace, who.user, views.session(who.session))
            return KnownSettings(source.base, levels, fault=_fault(views))

    def save(self, changes: Sequence[SettingsChanged]) -> None:
        """Fold settings into the store, or send them to the engine that runs on it."""
        self._submit("settings", changes)

    def save_sessions(self, events: Sequence[SessionSettingsChanged]) -> None:
        """Fold settings of sessions into the store, or send them to the engine that runs on it."""
        self._submit("events", events)

    def reload(self) -> ReloadResult:
        """Make the engine that runs on the store reload its files."""
        self._rights.check_order()
        try:
            EmbeddedEngine.open(self._path).close()
        except StoreLocked as taken:
            return self._engine_of(taken).reload()
        raise TrustfoldError(f"no engine runs on {self.name}; `trustfold up` reads the files when it starts")

    def _submit(self, topic: str, records: Sequence[SettingsChanged | SessionSettingsChanged]) -> None:
        self._rights.check_order()
        values = [encode(record) for record in records]
        try:
            with EmbeddedEngine.open(self._path) as engine:
                (receipt,) = engine.submit([SubmitRequest(topic, values)], arrived_ms=_now())
        except StoreLocked as taken:
            self._engine_of(taken).post_records(topic, values)
            return
        self._check_taken(receipt)

    def _check_taken(self, receipt: CommitReceipt) -> None:
        faults = [orjson.loads(out.value or b"{}") for out in receipt.outputs if out.topic == DEAD_LETTERS]
        if faults:
            raise TrustfoldError(f"{self.name} did not take it: {faults[0]['path']}: {faults[0]['message']}")

    def dead_letters(self, *, everything: bool) -> list[ListedLetter]:
        """Dead letters, oldest first."""
        letters: list[ListedLetter] = []
        with closing(StoreViews.open(self._path)) as views:
            after = 0
            while page := views.dead_letters(after=after, limit=MAX_PAGE, republished=everything):
                after = page[-1].offset
                letters += [ListedLetter(str(one.offset), orjson.loads(one.output.value or b"{}")) for one in page]
        return with_states(letters, self.dead_letters(everything=False)) if everything else letters

    def republish(self, letters: Sequence[ListedLetter]) -> RepublishResult:
        """Fold the records of dead letters again."""
        self._rights.check_order()
        try:
            with EmbeddedEngine.open(self._path) as engine:
                outputs = engine.republish([int(letter.ref) for letter in letters], arrived_ms=_now())
        except StoreLocked as taken:
            return self._engine_of(taken).republish(letters)
        return RepublishResult(len(letters), sum(output.topic == DEAD_LETTERS for output in outputs))

    def _engine_of(self, taken: StoreLocked) -> HttpTarget:
        if not taken.address:
            raise taken
        if not answers(taken.address):
            raise TookTooLong(
                f"{taken.address} does not answer (process {taken.process}); this user's server is started anew by "
                "`trustfold up --stop; trustfold up --detach`, any other where it was started"
            )
        return HttpTarget(taken.address, self._rights)


def _fault(views: StoreViews) -> str | None:
    found = views.noted("rules_fault")
    return str(found) if found is not None else None


def _now() -> int:
    return time.time_ns() // 1_000_000

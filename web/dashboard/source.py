"""Protocol of the dashboard's data source, implemented for a served store and for Kafka."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from ...history.files import source_of
from ...history.sessions.ranking import SessionSummary
from ...history.sessions.timeline import TimelineEntries
from ...projections.processor import CLOCK_TOLERANCE_MS
from ...rules.rules import RuleSet
from ...schemas.commands import Command
from ...schemas.decision_text import counted
from ...schemas.events import Event
from ...schemas.topics import TOPICS
from .current_state import StateBoard

Record = dict[str, Any]  # Parsed event or decision in the wire format


class PlacedRecord(NamedTuple):
    """A record and its place."""

    # rises with each record of the source; records of one kind, input or output, are ordered by it. 0: an event that
    # the engine itself has appended, when a call did not end in time.
    offset: int
    record: Record  # the event or decision
    arrived_ms: int = -1  # wall clock at which it, or the input behind it, arrived, milliseconds since 1970; -1 unknown


class SearchResult(NamedTuple):
    """Result of a search."""

    records: list[Record]  # events that hold the text, newest first
    sessions: Sequence[str] = ()  # ids of sessions that hold it
    left_out: str = ""  # what was not searched, in words; empty if everything was

    def and_then(self, older: SearchResult) -> SearchResult:
        """This result, with the one of a search in older records."""
        return SearchResult([*self.records, *older.records], self.sessions, self.left_out or older.left_out)


class DataFreshness(NamedTuple):
    """How new the data is."""

    # wall clock at which the newest record arrived, milliseconds since 1970; None before the first one
    newest_ms: int | None
    behind: int | None = None  # records that wait to be folded; None where that is not known
    fault: str | None = None  # why nothing new arrives, in words; None when all is well
    past: str | None = None  # why the history is not read, in words; None where it is
    skipped: int = 0  # records that could not be read, since the start of this server
    skipped_last: str = ""  # topic and place of the last of these, in words; empty if there is none
    clocks: str = ""  # which clock is wrong, in words; empty if none is known to be


def wrong_clocks(ahead_s: float, clamped: int = 0) -> str:
    """Which clock is wrong, in words; empty if none is known to be. `clamped`: events whose times ran ahead."""
    far = ahead_s > CLOCK_TOLERANCE_MS / 1000
    found = [f"the log is {ahead_s:,.0f} s ahead of this machine's clock"] if far else []
    found += [f"{counted(clamped, 'event')} came from a clock that is ahead of this one's"] if clamped else []
    return ", and ".join(found)


def topic_of(record: Command | Event) -> Literal["commands", "events"]:
    """Topic of an order or event to be sent."""
    return "commands" if record.__struct_config__.tag in TOPICS["commands"].types else "events"


def foreign_history(history: Path | None, ours: str) -> str:
    """Why a history is not one of a source, in words; empty if it is, or names no source.

    Offsets, sessions and decisions of another source would be taken for those of this one.

    Args:
        history: directory of Parquet files; None: there is none.
        ours: the source, as `history.files.source_of` names it.
    """
    known = source_of(history) if history is not None else ""
    if known in {"", ours}:
        return ""
    return f"{history} holds the history of {known}, this is {ours}; name the directory of this one (--history)"


class DashboardSource(Protocol):
    """Data of one installation. Async methods read concurrently with the writer and never block it."""

    @property
    def name(self) -> str:
        """Where the data is from, for titles and messages: a file, a cluster."""

    @property
    def board(self) -> StateBoard:
        """States, open patterns and the latest decisions, in memory, as of the newest commit."""

    @property
    def history(self) -> Path | None:
        """Directory of Parquet files for the History pages; None where nothing is recorded."""

    @property
    def foreign(self) -> str:
        """Why `history` is not read: it holds records of another source, in words; empty if it may be read."""

    @property
    def rules(self) -> RuleSet:
        """Rules in force now, without what scopes override."""

    def freshness(self) -> DataFreshness:
        """How new the board is."""

    async def renew(self) -> None:
        """Bring the details of sessions on the board up to date (`StateBoard.detail`), where that is possible.

        Raises:
            TrustfoldError: the states of sessions cannot be read.
        """

    async def sessions(self) -> list[SessionSummary]:
        """Every session that is not over, in any order."""

    async def decisions(self, *, session: str = "", before: int | None = None, limit: int = 200) -> list[PlacedRecord]:
        """Latest decisions (`state` records excluded), oldest first, at most `limit`.

        Only those of one session, where one is named; only those in front of the offset `before`.
        """

    async def decision(self, decision_id: str) -> PlacedRecord | None:
        """The decision of an id; None where it is not kept any more."""

    async def events(self, *, session: str, before: int | None = None, limit: int = 200) -> list[PlacedRecord]:
        """Latest input events of a session, oldest first, at most `limit`, in front of the offset `before`.

        Without `before` those that the engine has appended stand at the end.
        """

    async def records(self, session: str) -> dict[str, Record]:
        """Records of the latest calls of a session, by the event that ended each; none if not kept by session."""

    async def recorded(self, session: str) -> TimelineEntries | None:
        """Timeline of a session in `history`; None where it is not recorded.

        Raises:
            QuestionUnanswered: looking for it took too long.
            HistoryError: the files cannot be read.
        """

    async def events_up_to(self, offset: int, *, limit: int = 2000) -> list[PlacedRecord]:
        """Latest input events of all sessions up to an offset, that one included, oldest first."""

    async def circuits(self, since_ms: int, until_ms: int) -> list[PlacedRecord]:
        """Changes of circuits within a time (milliseconds since 1970, both ends included), oldest first."""

    async def events_of(self, ids: Collection[str], *, session: str = "") -> list[PlacedRecord]:
        """Input events of the given ids that are still kept, oldest first; `session` is a hint where to look."""

    async def search(self, text: str, limit: int) -> SearchResult:
        """Latest input events whose JSON holds a text in any case, at most `limit`, and sessions whose id does."""

    async def send(self, records: Sequence[Command | Event]) -> list[Record] | None:
        """Send orders and events of an operator; returns the decisions they caused.

        Returns None if they take effect later.

        Raises:
            TrustfoldError: one of them was not taken; the message says why.
        """

"""Protocol of the clients: the store of the embedded engine, a running `up`, or Kafka.

All give the same answers, so commands need not distinguish them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from ... import __version__
from ...config import INSTALLATION
from ...errors import ConfigError, TrustfoldError
from ...rules.levels import Levels
from ...rules.rules import RuleSet
from ...schemas.commands import Command
from ...schemas.decision_text import DecisionLine, line_of, line_of_unreadable
from ...schemas.decisions import Decision, readable_decision
from ...schemas.events import SessionSettingsChanged
from ...schemas.public_state import PublicState, readable_state
from ...schemas.settings import SettingsChanged

Record = dict[str, Any]
S_co = TypeVar("S_co", bound=PublicState | None, covariant=True)
K = TypeVar("K", bound=PublicState)


class TargetRights(NamedTuple):
    """Rights of a command at a target."""

    token: str = ""  # the publishers' token
    operator_token: str = ""  # the operator's token
    refusal: str = ""  # why the command may give no orders; empty if the target decides that

    def check_order(self) -> None:
        """Refuse an order that this command may not give."""
        if self.refusal:
            raise TrustfoldError(self.refusal)


NO_RIGHTS = TargetRights()  # Of a command without tokens: the server decides


class ServerIdentity(msgspec.Struct):
    """Which server answers; empty texts for one of an earlier version."""

    version: str = ""  # of trustfold
    installation: str = ""  # folder of its package
    store: str = ""  # file of its store
    since: str = ""  # when it started

    @property
    def is_this(self) -> bool:
        """Whether it is of this version and installation."""
        return (self.version, self.installation) == (__version__, str(INSTALLATION))


LAST = "last"  # In place of a session's id: the one that was heard last


class ServerInfo(NamedTuple):
    """The server that a target reads, or that runs over the store that it reads."""

    url: str  # its address
    about: ServerIdentity | None = None  # what it says of itself; None if it does not answer
    # number of hooks (`hooks`), time of the last one (`last_time`) and whether it was answered (`shadow`), by agent
    agents: dict[str, Record] = {}
    said: Sequence[Record] = ()  # latest answers to hooks
    # reason of the pause by session, of each session of an agent; empty for one that works on
    paused: dict[str, str] = {}

    def named(self, session: str) -> str:
        """Id of the session that a user names: for `last` the one heard last, and of a sub-agent that of its parent."""
        if session != LAST:
            return session
        if not self.paused:
            raise ConfigError("no session of a connected agent yet; `trustfold doctor` shows whether hooks arrive")
        latest = next(reversed(self.paused))
        parent = latest.partition("/")[0]
        return parent if parent in self.paused else latest


class StateRecord(NamedTuple, Generic[S_co]):
    """Record of the `state` topic: the public state of one key."""

    record: Record  # as received, with fields of later versions; printed by `--json`
    state: S_co  # decoded; None if a later version wrote it in a form unknown here


class DecisionRecord(NamedTuple):
    """Record of an output topic."""

    record: Record  # as received, with fields of later versions; printed by `--json`
    decision: Decision | None  # decoded; None if a later version wrote it in a form unknown here

    @property
    def line(self) -> DecisionLine:
        """The decision as text."""
        return line_of_unreadable(self.record) if self.decision is None else line_of(self.decision)


class StateOverview(NamedTuple):
    """All states that differ from their default."""

    records: list[StateRecord[PublicState | None]]  # records of the `state` topic
    recovery_mode: str | None  # `auto` or `ask`; None if unknown at the source
    fault: str | None = None  # why the newest rules file is not used; None if it is used, or if unknown at the source
    # why the states may be old: events wait to be folded; empty if they do not, or if unknown at the source
    unfolded: str = ""

    @property
    def states(self) -> list[PublicState]:
        """Decoded states, without those in a form unknown here."""
        return [one.state for one in self.records if one.state is not None]

    def of_kind(self, kind: type[K]) -> list[StateRecord[K]]:
        """Records with a state of this kind."""
        return [StateRecord(one.record, one.state) for one in self.records if isinstance(one.state, kind)]


class SettingsOwner(NamedTuple):
    """Owner of settings: ids of a workspace, a user and a session; empty for no user or session."""

    workspace: str
    user: str
    session: str = ""


class KnownSettings(msgspec.Struct, frozen=True, rename={"base": "rules", "fault": "rules_fault"}):
    """Settings read from a target; as JSON, the answer of a server."""

    base: RuleSet  # rules that the levels override
    levels: Levels  # the settings of each level
    unknown: str = ""  # which settings the target cannot report, as text; empty if none
    fault: str | None = None  # why the newest rules file is not used; None if it is


class ReloadResult(msgspec.Struct, frozen=True, rename={"taken": "reloaded", "fault": "rules_fault"}):
    """Result of reloading rules and policies; as JSON, the answer of a server."""

    taken: bool  # whether they are in force now
    files: list[str]  # names of the files read
    fault: str | None  # why they are not; None if they are


class LetterState(StrEnum):
    """State of a dead letter."""

    OPEN = "open"
    CLAIMED = "claimed"  # Another process is republishing it
    INTERRUPTED = "interrupted"  # A process that was republishing it ended before it recorded that it had sent it
    REPUBLISHED = "republished"


class ListedLetter(NamedTuple):
    """A dead letter."""

    ref: str  # its identifier at the source, used for republishing
    body: Record  # the record
    state: LetterState = LetterState.OPEN  # whether it has been republished


class RepublishResult(msgspec.Struct, frozen=True, rename={"sent": "republished", "failed": "dead_letters"}):
    """Result of republishing records; as JSON, the answer of a server."""

    sent: int  # number of records sent
    failed: int | None = None  # number of those that became dead letters again; None if not known yet
    before: int = 0  # number already republished by another process
    claimed: int = 0  # number that another process is republishing


class DeploymentClient(Protocol):
    """Client that reads states and sends orders."""

    @property
    def name(self) -> str:
        """Name of the target in messages."""

    def dashboard(self) -> str:
        """Address of the dashboard, which signs a browser in once.

        Raises:
            TrustfoldError: no server shows one.
        """

    def server(self) -> ServerInfo | None:
        """The server that is read, or runs over the store that is read; None if there is none."""

    def overview(self) -> StateOverview:
        """Public state of every key that differs from its default."""

    def incidents(self) -> list[Record]:
        """Incidents as plain data (`projections.incidents`), most urgent first."""

    def history(self, limit: int) -> list[DecisionRecord]:
        """Latest decisions about tools, oldest first."""

    def session(self, session_id: str) -> Record | None:
        """The timeline of a session, as one document (`history.sessions.json_view`); None if the session is unknown.

        Raises:
            TrustfoldError: this target cannot read sessions.
        """

    def order(self, commands: Sequence[Command]) -> list[DecisionRecord] | None:
        """Send commands; returns the decisions they caused, or None if they take effect later."""

    def settings(self, who: SettingsOwner) -> KnownSettings:
        """Settings of each level for a workspace, user and session."""

    def save(self, changes: Sequence[SettingsChanged]) -> None:
        """Replace the settings of scopes; an empty record clears its scope.

        Raises:
            TrustfoldError: the target rejects one of them.
        """

    def save_sessions(self, events: Sequence[SessionSettingsChanged]) -> None:
        """Replace the settings of sessions.

        Raises:
            TrustfoldError: the target rejects one of them.
        """

    def reload(self) -> ReloadResult:
        """Make the running engine reload rules and policies.

        Raises:
            TrustfoldError: no engine runs there, or it cannot be reached.
        """

    def dead_letters(self, *, everything: bool) -> list[ListedLetter]:
        """Dead letters, oldest first; `everything` includes those already republished."""

    def republish(self, letters: Sequence[ListedLetter]) -> RepublishResult:
        """Republish the records of dead letters."""


def state_records(records: Iterable[Record]) -> list[StateRecord[PublicState | None]]:
    """Decode records of the `state` topic."""
    return [StateRecord(record, readable_state(record)) for record in records]


def decision_records(records: Iterable[Record]) -> list[DecisionRecord]:
    """Decode records of output topics."""
    return [DecisionRecord(record, readable_decision(record)) for record in records]


def with_states(every: Sequence[ListedLetter], unpublished: Sequence[ListedLetter]) -> list[ListedLetter]:
    """All dead letters with their state: republished, unless they are in `unpublished`."""
    refs = {letter.ref for letter in unpublished}
    return [one if one.ref in refs else one._replace(state=LetterState.REPUBLISHED) for one in every]

"""Whom a command talks to: the store of the embedded engine, a running `up`, or Kafka.

Each gives the same answers, so `status` and `reset` do not know which one they asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from ...rules.levels import Levels
from ...rules.rules import Rules
from ...schemas.commands import Command
from ...schemas.events import SessionSettingsChanged
from ...schemas.settings import SettingsChanged

Record = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


class Overview(NamedTuple):
    """What stands away from its default.

    Attributes:
        states: public state records, as on the `state` topic.
        recovery_mode: `auto` or `ask`; None where the source does not say.
        fault: why the newest rules file is not used; None when it is, or where the source does not say.
    """

    states: list[Record]
    recovery_mode: str | None
    fault: str | None = None


class Who(NamedTuple):
    """Whose settings are meant.

    Attributes:
        workspace: id.
        user: id; empty for nobody.
        session: id; empty for none.
    """

    workspace: str
    user: str
    session: str = ""


class Known(NamedTuple):
    """What is known of the settings at a target.

    Attributes:
        base: rules that the levels override.
        levels: what each level sets.
        unknown: what cannot be known there, in words; empty when nothing is missing.
        fault: why the newest rules file is not used; None when it is.
    """

    base: Rules
    levels: Levels
    unknown: str = ""
    fault: str | None = None


class Reloaded(NamedTuple):
    """What became of reading rules and policies again.

    Attributes:
        taken: whether they are in force now.
        files: which.
        fault: why they are not.
    """

    taken: bool
    files: list[str]
    fault: str | None


class LetterState(StrEnum):
    """State of a dead letter."""

    OPEN = "open"
    CLAIMED = "claimed"
    """Another process publishes it again just now."""
    INTERRUPTED = "interrupted"
    """A process that wanted to publish it again ended before it said that it had."""
    REPUBLISHED = "republished"


class Letter(NamedTuple):
    """A dead letter.

    Attributes:
        ref: name it has at its source, for republishing.
        body: the record.
        state: what became of it.
    """

    ref: str
    body: Record
    state: LetterState = LetterState.OPEN


class Republished(NamedTuple):
    """Result of publishing records again.

    Attributes:
        sent: how many were.
        failed: how many of them became dead letters again; None where that is not known yet.
        before: how many had been already, by somebody else in the meantime.
        claimed: how many another process is at.
    """

    sent: int
    failed: int | None = None
    before: int = 0
    claimed: int = 0


class Target(Protocol):
    """Where states are read and orders are sent."""

    @property
    def name(self) -> str:
        """For messages."""

    def overview(self) -> Overview:
        """Public state of every key away from its default."""

    def history(self, limit: int) -> list[Record]:
        """Latest decisions about tools, oldest first."""

    def session(self, session_id: str) -> Record | None:
        """The timeline of a session, as one document (`history.sessions.json_view`); None where nothing is kept of it.

        Raises:
            TrustfoldError: sessions cannot be read there.
        """

    def order(self, commands: Sequence[Command]) -> list[Record] | None:
        """Send commands; returns the decisions they caused, or None where they take effect later."""

    def settings(self, who: Who) -> Known:
        """What each level sets for somebody."""

    def save(self, changes: Sequence[SettingsChanged]) -> None:
        """Replace what scopes override; an empty record clears its scope.

        Raises:
            TrustfoldError: the target does not take one of them.
        """

    def tell(self, events: Sequence[SessionSettingsChanged]) -> None:
        """Replace what sessions override.

        Raises:
            TrustfoldError: the target does not take one of them.
        """

    def reload(self) -> Reloaded:
        """Have rules and policies read again.

        Raises:
            TrustfoldError: nothing runs there that could, or it cannot be asked.
        """

    def dead_letters(self, *, everything: bool) -> list[Letter]:
        """Dead letters, oldest first; `everything` includes those published again."""

    def republish(self, letters: Sequence[Letter]) -> Republished:
        """Publish the records behind dead letters again."""


def with_states(every: Sequence[Letter], unpublished: Sequence[Letter]) -> list[Letter]:
    """All dead letters with their state, told by which of them are open."""
    refs = {letter.ref for letter in unpublished}
    return [one if one.ref in refs else one._replace(state=LetterState.REPUBLISHED) for one in every]

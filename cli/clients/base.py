"""Whom a command talks to: the store of the embedded engine, a running `up`, or Kafka.

Each gives the same answers, so `status` and `reset` do not know which one they asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import click

from ...config import DEFAULT_DB, Settings
from ...rules.levels import Levels
from ...rules.rules import Rules
from ...schemas.commands import Command
from ...schemas.errors import ConfigError
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


def target_options(command: F) -> F:
    """The options that say whom to talk to."""
    for option in reversed(
        (
            click.option(
                "--store",
                metavar="FILE",
                help=f"Store of the embedded engine. [env: TRUSTFOLD_DB; default: {DEFAULT_DB}]",
            ),
            click.option("--url", metavar="URL", help="Address of a running `up`. [env: TRUSTFOLD_URL]"),
            click.option("--bootstrap", metavar="HOST:PORT", help="Kafka broker. [env: TRUSTFOLD_BROKER]"),
        )
    ):
        command = option(command)
    return command


def rules_options(command: F) -> F:
    """The options that name the files of rules and policies."""
    for option in (
        click.option(
            "--policies", "policies_file", metavar="FILE", help="Prerequisites to go by. [env: TRUSTFOLD_POLICIES]"
        ),
        click.option(
            "--rules", "rules_file", metavar="FILE", help="Rules to go by, TOML or JSON. [env: TRUSTFOLD_RULES]"
        ),
    ):
        command = option(command)
    return command


def target_of(store: str | None, url: str | None, bootstrap: str | None, settings: Settings | None = None) -> Target:
    """The target that options name, else the environment, the store of this directory, or that of the user's service.

    Raises:
        ConfigError: more than one is named, or there is none.
    """
    given = [name for name, value in (("--store", store), ("--url", url), ("--bootstrap", bootstrap)) if value]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} name different places; give one of them")
    settings = settings or Settings.from_env()
    if not given:
        url, bootstrap = settings.url, "" if settings.url else settings.broker
    if url:
        from .http import HttpTarget

        return HttpTarget(url, settings.token, settings.operator_token)
    if bootstrap:
        from .kafka import KafkaTarget

        return KafkaTarget(bootstrap)
    from .store import StoreTarget

    path = Path(store) if store else settings.db
    if not store and path == DEFAULT_DB and not path.is_file():
        from ..service import UserService

        service = UserService()
        if service.store.is_file():
            return StoreTarget(service.store, *service.tokens_for_terminal())
    if path.is_dir():
        raise ConfigError(f"{path}: is a directory; name the store in it, e.g. {path / 'trustfold.sqlite'}")
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such store; start one with `trustfold up`, or name another place: --store FILE, --url URL, "
            "--bootstrap HOST:PORT"
        )
    return StoreTarget(path, settings.token, settings.operator_token)


def keys_for_completion(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Live keys for the shell's completion; none when nothing answers at once."""
    return _completed(context, incomplete, lambda _state: True)


def stuck_keys_for_completion(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Live keys that are not trusted, and circuits that are not as usual: what `reset` and `recover` are for."""
    return _completed(context, incomplete, lambda state: state["kind"] == "breaker" or state["state"] != "trusted")


def _completed(context: click.Context, incomplete: str, wanted: Callable[[Record], bool]) -> list[str]:
    given = context.params
    try:
        target = target_of(given.get("store"), given.get("url"), given.get("bootstrap"))
        states = [state for state in target.overview().states if state["kind"] in {"trust", "breaker"}]
        keys = {str(state["key"]) for state in states if wanted(state)}
    except Exception:  # noqa: BLE001 - a completion must never print an error
        return []
    return sorted(key for key in keys if key.startswith(incomplete))

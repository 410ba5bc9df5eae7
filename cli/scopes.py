"""Whose settings a command means, and writing one level of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from ..config import Settings
from ..rules.levels import Level, changed, check, set_by
from ..rules.older_shapes import Misfit
from ..schemas.errors import ConfigError
from ..schemas.events import SessionSettingsChanged
from ..schemas.outcomes import DEFAULT_WORKSPACE
from ..schemas.settings import SettingsChanged, SettingsOverrides
from .clients.base import F, Known, Target, Who, target_of, target_options
from .orders import envelope, operator_name
from .render import note

SAVED = {Level.WORKSPACE.value: Level.WORKSPACE, Level.USER.value: Level.USER, Level.SESSION.value: Level.SESSION}
"""Levels that commands can write, by the word for them."""


class Place(NamedTuple):
    """Where settings are read and written, and for whom.

    Attributes:
        target: whom the command talks to.
        who: whose settings it means.
        settings: what the environment says.
    """

    target: Target
    who: Who
    settings: Settings

    def known(self) -> Known:
        """What each level sets."""
        return self.target.settings(self.who)

    def scope(self, level: Level) -> str:
        """Name of a level's scope, for records and for messages.

        Raises:
            ConfigError: nobody is named.
        """
        found = {Level.WORKSPACE: self.who.workspace, Level.USER: self.who.user, Level.SESSION: self.who.session}[level]
        if not found:
            raise ConfigError(f"which {level}? Name it with --{level} ID, or set TRUSTFOLD_{level.upper()}")
        return f"{level}:{found}"

    def write(
        self, level: Level, changes: Mapping[str, Any], known: Known, reason: str | None = None
    ) -> SettingsOverrides:
        """Replace settings of a level, and nothing else of it; None unsets one. Returns all that it sets now.

        Raises:
            ConfigError: a value makes no sense, or may not be saved on this level.
        """
        scope = self.scope(level)
        refusal = self.settings.refusal(level)
        if refusal:
            raise ConfigError(refusal)
        try:
            overrides = changed(known.levels.get(level), changes)
            check(level, overrides, known.base)
        except Misfit as error:
            raise ConfigError(str(error)) from error
        if level is Level.SESSION:
            if known.unknown:
                note(f"all that {scope} had set before is replaced: {known.unknown}")
            fields = envelope()
            del fields["issued_by"], fields["reason"]
            self.target.tell([SessionSettingsChanged(**fields, session_id=self.who.session, settings=overrides)])
        else:
            self.target.save([SettingsChanged(**envelope(reason), scope=scope, overrides=overrides)])
        return overrides

    def warn(self, names: Mapping[str, Any], level: Level, known: Known) -> None:
        """Say so where a more specific level hides what was just set."""
        order = list(Level)
        for above in order[: order.index(level)]:
            for name in sorted(set(names) & set_by(known.levels.get(above)).keys()):
                note(f"{name} of the {above} goes before it, as long as it is set there")


def scope_options(command: F) -> F:
    """The options that say whom to talk to, and whose settings are meant."""
    for option in (
        click.option("--session", metavar="ID", help="Session meant. [env: TRUSTFOLD_SESSION]"),
        click.option("--user", metavar="ID", help="User meant. [env: TRUSTFOLD_USER; default: who you are here]"),
        click.option(
            "--workspace",
            metavar="ID",
            help=f"Workspace meant. [env: TRUSTFOLD_WORKSPACE; default: {DEFAULT_WORKSPACE}]",
        ),
    ):
        command = option(command)
    return target_options(command)


def place_of(
    *,
    store: str | None,
    url: str | None,
    bootstrap: str | None,
    workspace: str | None,
    user: str | None,
    session: str | None,
) -> Place:
    """The place that the options of `scope_options` name, else the environment."""
    settings = Settings.from_env()
    who = Who(
        workspace or settings.workspace or DEFAULT_WORKSPACE,
        user or settings.user or operator_name() or "",
        session or settings.session,
    )
    return Place(target_of(store, url, bootstrap, settings), who, settings)

"""`trustfold recovery`, `nudge` and `model`: the settings of one word, each with a command of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

import click

from ..rules.levels import Level, set_by, table
from ..schemas.errors import ConfigError
from ..schemas.vocabulary import ModelSwitchStrategy, NudgeLevel, RecoveryMode
from .clients.base import Known
from .quality_view import models_table
from .render import console, echo, note, write_json
from .scopes import SAVED, Place, place_of, scope_options


def _words_of(kind: type[StrEnum]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completion of the words: a value, then perhaps `save`, then a level."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        given = context.params.get("words") or ()
        if given and given[-1] == "save":
            known = ["workspace", "user"]
        elif given:
            known = ["save"] if given[-1] in set(kind) else []
        else:
            known = [*kind, "save"]
        return [word for word in known if word.startswith(incomplete)]

    return complete


@click.command()
@click.argument("words", nargs=-1, metavar="[auto|ask] [save workspace|user]", shell_complete=_words_of(RecoveryMode))
@scope_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def recovery(*, words: tuple[str, ...], as_json: bool, **where: str | None) -> None:
    """Let trust come back by itself (auto), or only when you say `trustfold recover` (ask).

    For the session named, or saved for a workspace or a user. Without a word: what is in effect.
    """
    _prefer("recovery_mode", RecoveryMode, words, as_json=as_json, place=place_of(**where))


@click.command()
@click.argument(
    "words", nargs=-1, metavar="[off|gentle|direct|full] [save workspace|user]", shell_complete=_words_of(NudgeLevel)
)
@scope_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def nudge(*, words: tuple[str, ...], as_json: bool, **where: str | None) -> None:
    """Say how strongly models are spoken to at most.

    For the session named, or saved for a workspace or a user. Without a word: what is in effect.
    """
    _prefer("nudge_level", NudgeLevel, words, as_json=as_json, place=place_of(**where))


@click.command()
@click.argument(
    "words",
    nargs=-1,
    metavar="[suggest|auto|disabled] [save workspace|user]",
    shell_complete=_words_of(ModelSwitchStrategy),
)
@scope_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def model(*, words: tuple[str, ...], as_json: bool, **where: str | None) -> None:
    """Say what is done when another model does better with a tool.

    For the session named, or saved for a workspace or a user. Without a word: what is in effect, and how each model
    did with each tool.
    """
    place = place_of(**where)
    if words:
        _prefer("model_switch_strategy", ModelSwitchStrategy, words, as_json=as_json, place=place)
        return
    states = place.target.overview().states
    profiles = [one for one in states if one["kind"] == "model" and one.get("success_rate") is not None]
    _show("model_switch_strategy", place.known(), as_json=as_json, **({"profiles": profiles} if as_json else {}))
    if profiles and not as_json:
        console().print(models_table(profiles))


def _prefer(name: str, kind: type[StrEnum], words: Iterable[str], *, as_json: bool, place: Place) -> None:
    value, level = _understood(tuple(words), kind, place)
    known = place.known()
    if level is None:
        _show(name, known, as_json=as_json)
        return
    if value is None:
        if not place.who.session:
            raise ConfigError(f"save which {name}? Name the value, or the --session whose value is to be saved")
        value = set_by(known.levels.get(Level.SESSION)).get(name)
        if value is None:
            raise ConfigError(f"{place.scope(Level.SESSION)} does not set {name}; name the value to save")
    place.write(level, {name: value}, known)
    scope = place.scope(level)
    if as_json:
        write_json({"setting": name, "value": value, "level": level, "scope": scope})
    elif level is Level.SESSION:
        echo(f"✓ {name} set to '{value}' for {scope}")
    else:
        echo(f"✓ {name} '{value}' saved for {scope}")
    place.warn({name: value}, level, known)


def _understood(words: tuple[str, ...], kind: type[StrEnum], place: Place) -> tuple[str | None, Level | None]:
    """Value and level that the words name; no level: show what is in effect.

    Raises:
        ConfigError: they make no sense.
    """
    value = words[0] if words and words[0] in set(kind) else None
    rest = words[1:] if value else words
    if not rest:
        if value is not None and not place.who.session:
            raise ConfigError(f"{value} for whom? Name a --session, or add `save workspace` or `save user`")
        return value, Level.SESSION if value is not None else None
    if len(rest) == 2 and rest[0] == "save" and rest[1] in SAVED and rest[1] != Level.SESSION:
        return value, SAVED[rest[1]]
    raise ConfigError(f"{' '.join(words)!r} is not understood; use {'|'.join(kind)}, then perhaps save workspace|user")


def _show(name: str, known: Known, *, as_json: bool, **more: Any) -> None:
    (row,) = [row for row in table(known.base, known.levels) if row.name == name]
    if as_json:
        write_json({"setting": name, "value": row.value, "source": row.level} | more)
        return
    echo(f"{name}: {row.value} ({row.level})")
    if known.unknown:
        note(known.unknown)

"""`trustfold settings`: every setting with the level it comes from; saving and clearing a level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec
import orjson

from ..config import read_document
from ..rules.levels import NAMES, Level, Setting, set_by, table
from ..rules.overlay import plain
from ..schemas.errors import ConfigError
from .clients.base import Known
from .config import in_words
from .orders import ask
from .render import console, echo, note, write_json
from .scopes import SAVED, Place, place_of, scope_options

_SHOWN = {Level.SESSION: "session (override)", Level.USER: "user (default)"}
"""Levels as the seed's table names them; the others are named as they are."""


@click.group(invoke_without_command=True)
@scope_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_context
def settings(context: click.Context, /, *, as_json: bool, **where: str | None) -> None:
    """Show every setting in effect and who says so.

    The environment goes before the session, the session before the workspace, the workspace before the user, and the
    user before the rules file and the defaults.
    """
    if context.invoked_subcommand is not None:
        if any(where.values()) or as_json:
            raise ConfigError(f"options of `settings {context.invoked_subcommand}` go behind its name")
        return
    place = place_of(**where)
    known = place.known()
    rows = table(known.base, known.levels)
    if as_json:
        write_json(
            {
                "source": place.target.name,
                **place.who._asdict(),
                "settings": [{"setting": row.name, "value": row.value, "source": row.level} for row in rows],
                "levels": {str(level): set_by(overrides) for level, overrides in known.levels.items()},
                "rules_fault": known.fault,
            }
        )
        return
    show_table(rows)
    for text in (known.unknown, known.fault and f"{known.fault}; the rules read before hold"):
        if text:
            note(text)


@settings.command()
@click.argument("level", type=click.Choice(list(SAVED)))
@click.argument("pairs", nargs=-1, metavar="[NAME[=VALUE]]...")
@click.option("--rules", "rules_file", metavar="FILE", help="Rules for this level: only what the file names.")
@click.option("--policies", "policies_file", metavar="FILE", help="Prerequisites for this level.")
@click.option("--reason", metavar="TEXT", help="Why; kept with the record.")
@scope_options
@click.option("--json", "as_json", is_flag=True, help="What the level sets now, as one JSON document.")
def save(
    *,
    level: str,
    pairs: tuple[str, ...],
    rules_file: str | None,
    policies_file: str | None,
    reason: str | None,
    as_json: bool,
    **where: str | None,
) -> None:
    """Set settings on a level: NAME=VALUE; NAME alone takes the session's value, no name all that the session sets.

    Only what is named is written; VALUE null unsets. A level above goes before it all the same.
    """
    place = place_of(**where)
    chosen = SAVED[level]
    known = place.known()
    changes = _changes(place, known, chosen, pairs, files=bool(rules_file or policies_file))
    if rules_file:
        changes["rules"] = plain(read_document(rules_file).patch)
    if policies_file:
        changes["policies"] = read_document(policies_file).only_policies().patch.get("policies", {})
    if not changes:
        note(f"{place.scope(Level.SESSION)} sets nothing; there is nothing to save")
        return
    overrides = place.write(chosen, changes, known, reason)
    _report(place, chosen, set_by(overrides), as_json=as_json)
    if not as_json:
        echo(f"✓ Saved for {place.scope(chosen)}:")
        for name, value in changes.items():
            echo(f"    - {name}: {_text(value) if value is not None else 'unset'}")
    place.warn(changes, chosen, known)


@settings.command()
@click.argument("level", type=click.Choice(list(SAVED)))
@click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[NAME]...")
@scope_options
@click.option("--yes", is_flag=True, help="Do not ask before clearing everything a user or workspace sets.")
@click.option("--json", "as_json", is_flag=True, help="What the level sets now, as one JSON document.")
def clear(*, level: str, names: tuple[str, ...], yes: bool, as_json: bool, **where: str | None) -> None:
    """Unset settings of a level, all of them or the named ones; it inherits them from then on."""
    place = place_of(**where)
    chosen = SAVED[level]
    scope = place.scope(chosen)
    known = place.known()
    unknown = bool(known.unknown) and chosen is Level.SESSION
    have = set_by(known.levels.get(chosen))
    gone = [name for name in (names or NAMES) if name in have or unknown]
    if gone and not names and chosen is not Level.SESSION:
        ask(f"Clear {', '.join(gone)} of {scope}?", yes=yes, why="this clears everything that it sets")
    overrides = place.write(chosen, dict.fromkeys(gone), known) if gone else known.levels.get(chosen)
    _report(place, chosen, set_by(overrides), as_json=as_json)
    if not as_json:
        done = f"✓ {', '.join(gone)} of {scope} cleared; inherited from now on"
        echo(done if gone else f"{scope} sets none of that; nothing was done")


def show_table(rows: Sequence[Setting]) -> None:
    """Settings as a table: value and source."""
    from rich import box
    from rich.table import Table

    shown = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold", title="Reliability settings in effect")
    for name in ("Setting", "Value", "Source"):
        shown.add_column(name, overflow="fold")
    for row in rows:
        value = in_words(row.value) if row.name.startswith("policies.") else _text(row.value)
        shown.add_row(row.name, value, _SHOWN.get(row.level, str(row.level)))
    console().print(shown)


def _changes(place: Place, known: Known, level: Level, pairs: Sequence[str], *, files: bool) -> dict[str, Any]:
    """What `save` was told to write."""
    session = set_by(known.levels.get(Level.SESSION))
    if not pairs:
        if files:
            return {}
        if level is Level.SESSION:
            raise ConfigError("say what to set for the session: NAME=VALUE")
        place.scope(Level.SESSION)
        if known.unknown:
            raise ConfigError(f"{known.unknown}; name the settings: NAME=VALUE")
        return session
    changes: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if name not in NAMES:
            raise ConfigError(f"there is no setting {name!r}; there are {', '.join(NAMES)}")
        if not equals and name not in session:
            raise ConfigError(f"the session does not set {name}; give it a value: {name}=VALUE")
        changes[name] = _value(text) if equals else session[name]
    return changes


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _report(place: Place, level: Level, now: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        write_json({"scope": place.scope(level), "overrides": now})

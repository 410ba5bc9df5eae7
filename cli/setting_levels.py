"""`trustfold settings`, `recovery`, `nudge`, `model`: every setting with the level it comes from; changing a level."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import click
import msgspec
import orjson

from ..config import EnvironmentSettings, read_document
from ..errors import ConfigError
from ..rules.levels import NAMES, EffectiveSetting, SettingLevel, changed, check, set_by, table
from ..rules.merging import plain
from ..rules.older_shapes import RulesMisfit
from ..schemas.events import SessionSettingsChanged
from ..schemas.outcomes import DEFAULT_WORKSPACE
from ..schemas.public_state import ModelUpdated
from ..schemas.settings import SettingsChanged, SettingsOverrides
from ..schemas.vocabulary import ModelSwitchStrategy, NudgeLevel, RecoveryMode
from .clients.client import DeploymentClient, KnownSettings, SettingsOwner
from .clients.selection import target_of
from .operator import ask, envelope, operator_name, workspace_here
from .options import combined, json_option, target_options, workspace_option
from .quality import models_table
from .render import console, echo, note, note_any, write_json
from .terminal import lined_table

# Levels that commands can write, by name
SAVED = {
    SettingLevel.WORKSPACE.value: SettingLevel.WORKSPACE,
    SettingLevel.USER.value: SettingLevel.USER,
    SettingLevel.SESSION.value: SettingLevel.SESSION,
}


class SettingsPlace(NamedTuple):
    """Target and owner of settings that a command reads and writes."""

    target: DeploymentClient
    who: SettingsOwner
    settings: EnvironmentSettings

    def known(self) -> KnownSettings:
        """Settings of each level."""
        return self.target.settings(self.who)

    def scope(self, level: SettingLevel) -> str:
        """Name of a level's scope, for records and messages."""
        found = {
            SettingLevel.WORKSPACE: self.who.workspace,
            SettingLevel.USER: self.who.user,
            SettingLevel.SESSION: self.who.session,
        }[level]
        if not found:
            raise ConfigError(f"which {level}? Name it with --{level} ID, or set TRUSTFOLD_{level.upper()}")
        return f"{level}:{found}"

    def write(
        self, level: SettingLevel, changes: Mapping[str, Any], known: KnownSettings, reason: str | None = None
    ) -> SettingsOverrides:
        """Replace the given settings of a level; None unsets one. Returns all settings of the level afterwards."""
        scope = self.scope(level)
        refusal = self.settings.refusal(level)
        if refusal:
            raise ConfigError(refusal)
        try:
            overrides = changed(known.levels.get(level), changes)
            check(level, overrides, known.base)
        except RulesMisfit as error:
            raise ConfigError(str(error)) from error
        if level is SettingLevel.SESSION:
            if known.unknown:
                note(f"all earlier settings of {scope} are replaced: {known.unknown}")
            fields = envelope()
            del fields["issued_by"], fields["reason"]
            self.target.save_sessions(
                [SessionSettingsChanged(**fields, session_id=self.who.session, settings=overrides)]
            )
        else:
            self.target.save([SettingsChanged(**envelope(reason), scope=scope, overrides=overrides)])
        return overrides

    def warn(self, names: Mapping[str, Any], level: SettingLevel, known: KnownSettings) -> None:
        """Print a note if a higher level overrides the setting just written."""
        order = list(SettingLevel)
        for above in order[: order.index(level)]:
            for name in sorted(set(names) & set_by(known.levels.get(above)).keys()):
                note(f"{name} of the {above} takes precedence while it is set there")


# Decorator: adds the options that select the target and the owner of the settings
scope_options = combined(
    target_options,
    workspace_option(f"Workspace to use. [env: TRUSTFOLD_WORKSPACE; default: {DEFAULT_WORKSPACE}]"),
    click.option("--user", metavar="ID", help="User to use. [env: TRUSTFOLD_USER; default: your login name]"),
    click.option("--session", metavar="ID", help="Session to use. [env: TRUSTFOLD_SESSION]"),
)


def place_of(*, workspace: str | None, user: str | None, session: str | None, **where: str | None) -> SettingsPlace:
    """Place selected by the options of `scope_options`, else by the environment."""
    settings = EnvironmentSettings.from_env()
    target = target_of(**where, settings=settings)
    who = SettingsOwner(
        workspace or settings.workspace or workspace_here(target),
        user or settings.user or operator_name() or "",
        session or settings.session,
    )
    return SettingsPlace(target, who, settings)


def policy_text(policy: Mapping[str, Any]) -> str:
    """A policy as a sentence."""
    within = f", within {policy['within_turns']} turns" if policy["within_turns"] else ""
    applied = "" if policy["enabled"] else " (not applied)"
    return (
        f"{policy['requires']} before {', '.join(policy['before'])}{within}{policy_deviations(policy, '; ')}{applied}"
    )


def policy_deviations(policy: Mapping[str, Any], before: str = "") -> str:
    """A policy's own ladder and texts, as text; empty if it has none."""
    steps = ", ".join(f"{word} after {count}" for word, count in policy.get("severity_thresholds", {}).items())
    texts = [name for name in ("message", "texts", "expected_action") if policy.get(name)]
    words = [f"own steps: {steps}" if steps else "", "own texts" if texts else ""]
    found = "; ".join(filter(None, words))
    return f"{before}{found}" if found else ""


# Names in the table of levels that are not shown under their own name
_SHOWN = {SettingLevel.SESSION: "session (override)", SettingLevel.USER: "user (default)"}


@click.group(invoke_without_command=True)
@scope_options
@json_option()
@click.pass_context
def settings(context: click.Context, /, *, as_json: bool, **where: str | None) -> None:
    """Show every setting in effect and its source.

    Environment takes precedence over session, session over workspace, workspace over user, and user over the
    rules file and the defaults.
    """
    if context.invoked_subcommand is not None:
        if any(where.values()) or as_json:
            raise ConfigError(f"options of `settings {context.invoked_subcommand}` go after its name")
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
    note_any(known.unknown)
    note_any(known.fault and f"{known.fault}; the previous rules stay in force")


@settings.command()
@click.argument("level", type=click.Choice(list(SAVED)))
@click.argument("pairs", nargs=-1, metavar="[NAME[=VALUE]]...")
@click.option("--rules", "rules_file", metavar="FILE", help="Rules file for this level; only its settings are written.")
@click.option("--policies", "policies_file", metavar="FILE", help="Policies file for this level.")
@click.option("--reason", metavar="TEXT", help="Reason, kept with the record.")
@scope_options
@json_option("Print the level's settings as one JSON document.")
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
    """Set settings on a level: NAME=VALUE; NAME alone copies the session's value, no name copies all of them.

    Only the named settings are written; VALUE null unsets one. Levels above still take precedence.
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
        note(f"{place.scope(SettingLevel.SESSION)} sets nothing; there is nothing to save")
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
@click.option("--yes", is_flag=True, help="Clear all settings of a user or workspace without asking.")
@json_option("Print the level's settings as one JSON document.")
def clear(*, level: str, names: tuple[str, ...], yes: bool, as_json: bool, **where: str | None) -> None:
    """Unset all or the named settings of a level; it then inherits them."""
    place = place_of(**where)
    chosen = SAVED[level]
    scope = place.scope(chosen)
    known = place.known()
    unknown = bool(known.unknown) and chosen is SettingLevel.SESSION
    have = set_by(known.levels.get(chosen))
    gone = [name for name in (names or NAMES) if name in have or unknown]
    if gone and not names and chosen is not SettingLevel.SESSION:
        ask(f"Clear {', '.join(gone)} of {scope}?", yes=yes, why="this clears all its settings")
    overrides = place.write(chosen, dict.fromkeys(gone), known) if gone else known.levels.get(chosen)
    _report(place, chosen, set_by(overrides), as_json=as_json)
    if not as_json:
        done = f"✓ {', '.join(gone)} of {scope} cleared; now inherited"
        echo(done if gone else f"{scope} sets none of these; nothing changed")


def show_table(rows: Sequence[EffectiveSetting]) -> None:
    """Table of settings: value and source."""
    shown = lined_table("Setting", "Value", "Source", title="Reliability settings in effect")
    for row in rows:
        value = policy_text(row.value) if row.name.startswith("policies.") else _text(row.value)
        shown.add_row(row.name, value, _SHOWN.get(row.level, str(row.level)))
    console().print(shown)


def _changes(
    place: SettingsPlace, known: KnownSettings, level: SettingLevel, pairs: Sequence[str], *, files: bool
) -> dict[str, Any]:
    """Settings that `save` writes, from its arguments."""
    session = set_by(known.levels.get(SettingLevel.SESSION))
    if not pairs:
        if files:
            return {}
        if level is SettingLevel.SESSION:
            raise ConfigError("name the settings of the session: NAME=VALUE")
        place.scope(SettingLevel.SESSION)
        if known.unknown:
            raise ConfigError(f"{known.unknown}; name the settings: NAME=VALUE")
        return session
    changes: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if name not in NAMES:
            raise ConfigError(f"unknown setting {name!r}; choose from {', '.join(NAMES)}")
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


def _report(place: SettingsPlace, level: SettingLevel, now: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        write_json({"scope": place.scope(level), "overrides": now})


def _words_of(kind: type[StrEnum]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Shell completion of the arguments: a value, optionally `save`, and a level."""

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
@json_option()
def recovery(*, words: tuple[str, ...], as_json: bool, **where: str | None) -> None:
    """Choose whether trust is restored automatically (auto) or by `trustfold recover` (ask).

    Set for a session, or saved for a workspace or user. Without an argument: shows the value in effect.
    """
    _set_or_show("recovery_mode", RecoveryMode, words, as_json=as_json, place=place_of(**where))


@click.command()
@click.argument(
    "words", nargs=-1, metavar="[off|gentle|direct|full] [save workspace|user]", shell_complete=_words_of(NudgeLevel)
)
@scope_options
@json_option()
def nudge(*, words: tuple[str, ...], as_json: bool, **where: str | None) -> None:
    """Set the strongest nudge that models get.

    Set for a session, or saved for a workspace or user. Without an argument: shows the value in effect.
    """
    _set_or_show("nudge_level", NudgeLevel, words, as_json=as_json, place=place_of(**where))


@click.command()
@click.argument(
    "words",
    nargs=-1,
    metavar="[suggest|auto|disabled] [save workspace|user]",
    shell_complete=_words_of(ModelSwitchStrategy),
)
@scope_options
@json_option()
def model(*, words: tuple[str, ...], as_json: bool, **where: str | None) -> None:
    """Set what happens when another model does better with a tool.

    Set for a session, or saved for a workspace or user. Without an argument: shows the value in effect, and
    the success of each model with each tool.
    """
    place = place_of(**where)
    if words:
        _set_or_show("model_switch_strategy", ModelSwitchStrategy, words, as_json=as_json, place=place)
        return
    models = [one for one in place.target.overview().of_kind(ModelUpdated) if one.state.success_rate is not None]
    more = {"profiles": [one.record for one in models]} if as_json else {}
    _show("model_switch_strategy", place.known(), as_json=as_json, **more)
    if models and not as_json:
        console().print(models_table([one.state for one in models]))


def _set_or_show(name: str, kind: type[StrEnum], words: Iterable[str], *, as_json: bool, place: SettingsPlace) -> None:
    value, level = _parsed(tuple(words), kind, place)
    known = place.known()
    if level is None:
        _show(name, known, as_json=as_json)
        return
    if value is None:
        if not place.who.session:
            raise ConfigError(f"save which {name}? Name the value, or the --session whose value is to be saved")
        value = set_by(known.levels.get(SettingLevel.SESSION)).get(name)
        if value is None:
            raise ConfigError(f"{place.scope(SettingLevel.SESSION)} does not set {name}; name the value to save")
    place.write(level, {name: value}, known)
    scope = place.scope(level)
    if as_json:
        write_json({"setting": name, "value": value, "level": level, "scope": scope})
    elif level is SettingLevel.SESSION:
        echo(f"✓ {name} set to '{value}' for {scope}")
    else:
        echo(f"✓ {name} '{value}' saved for {scope}")
    place.warn({name: value}, level, known)


def _parsed(
    words: tuple[str, ...], kind: type[StrEnum], place: SettingsPlace
) -> tuple[str | None, SettingLevel | None]:
    """Value and level given by the arguments; no level means: show the value in effect."""
    value = words[0] if words and words[0] in set(kind) else None
    rest = words[1:] if value else words
    if not rest:
        if value is not None and not place.who.session:
            raise ConfigError(f"{value} for whom? Name a --session, or add `save workspace` or `save user`")
        return value, SettingLevel.SESSION if value is not None else None
    if len(rest) == 2 and rest[0] == "save" and rest[1] in SAVED and rest[1] != SettingLevel.SESSION:
        return value, SAVED[rest[1]]
    raise ConfigError(f"{' '.join(words)!r} is not understood; use {'|'.join(kind)}, optionally save workspace|user")


def _show(name: str, known: KnownSettings, *, as_json: bool, **more: Any) -> None:
    (row,) = [row for row in table(known.base, known.levels) if row.name == name]
    if as_json:
        write_json({"setting": name, "value": row.value, "source": row.level} | more)
        return
    echo(f"{name}: {row.value} ({row.level})")
    if known.unknown:
        note(known.unknown)

"""`trustfold config`, `policies`, `schemas`: show and check rules and prerequisites; export the schemas."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from ..config import ENVIRONMENT, EnvironmentSettings, load_rules, read_document
from ..errors import ConfigError
from ..rules.levels import table
from ..rules.merging import leaves, plain
from ..rules.parser import as_toml
from ..rules.rules import RuleSet
from ..schemas.decision_text import counted
from .clients.client import DeploymentClient
from .options import json_option, rules_options, with_target
from .render import console, echo, note, note_any, write_json
from .setting_levels import place_of, policy_deviations, policy_text, scope_options
from .terminal import lined_table

_SECRETS = frozenset({"TRUSTFOLD_TOKEN", "TRUSTFOLD_OPERATOR_TOKEN"})


@click.group(invoke_without_command=True)
@click.pass_context
def config(context: click.Context) -> None:
    """Show the rules in effect, as `config show` does; check a rules file before it is used."""
    if context.invoked_subcommand is None:
        context.invoke(show, rules_file=None, policies_file=None, everything=False, as_json=False)


@config.command()
@rules_options
@click.option("--all", "everything", is_flag=True, help="Include rules with their default value.")
@json_option("One JSON document with every rule.")
def show(*, rules_file: str | None, policies_file: str | None, everything: bool, as_json: bool) -> None:
    """Print the rules that files and environment give a command here, as TOML that can be used as a rules file.

    What users, workspaces and sessions override on top of it: `trustfold settings`.
    """
    settings = EnvironmentSettings.from_env()
    rules = settings.rules(rules_file, policies_file)
    environment = {name: _shown(name) for name in ENVIRONMENT if os.environ.get(name)}
    named = [str(path) for path in settings.rule_files(rules_file, policies_file).paths]
    if as_json:
        write_json({"files": named, "environment": environment, "rules": plain(rules)})
        return
    for line in (*[f"file {name}" for name in named], *[f"{name}={value}" for name, value in environment.items()]):
        echo(f"# {json.dumps(line, ensure_ascii=False)[1:-1] if not line.isprintable() else line}")
    text = as_toml(rules, everything=everything)
    echo(text, nl=False)
    if not text:
        note("every rule has its default value; --all prints them")


@config.command()
@click.argument("file", metavar="FILE")
@json_option()
def check(*, file: str, as_json: bool) -> None:
    """Check a rules file, TOML or JSON; a fault is reported with its line and the accepted values."""
    load_rules(file)
    named = leaves(read_document(file).patch)
    if as_json:
        write_json({"file": file, "ok": True, "rules": [".".join(path) for path in named]})
        return
    echo(f"✓ {file} can be used: {counted(len(named), 'value')} set")


@click.group()
def policies() -> None:
    """Prerequisites: tools that must be called before others, within a number of turns."""


@policies.command("list")
@scope_options
@json_option()
def list_(*, as_json: bool, **where: str | None) -> None:
    """Show every prerequisite in effect and the level it comes from."""
    place = place_of(**where)
    known = place.known()
    rows = [row for row in table(known.base, known.levels) if row.name.startswith("policies.")]
    found = [{"name": row.name.partition(".")[2], **row.value, "source": row.level} for row in rows]
    if as_json:
        write_json({"source": place.target.name, "policies": found, "rules_fault": known.fault})
        return
    if found:
        _show_policies(found)
    else:
        note(
            "there are no policies; name a file with `trustfold up --policies FILE`, or `settings save ... --policies`"
        )
    note_any(known.unknown)
    note_any(known.fault and f"{known.fault}; the previous policies stay in force")


@policies.command()
@click.argument("file", metavar="FILE")
@json_option()
def validate(*, file: str, as_json: bool) -> None:
    """Check a policies file, TOML or JSON; a fault is reported with its line and the accepted values."""
    found = read_document(file).only_policies().over(RuleSet()).policies
    if as_json:
        write_json({"file": file, "ok": True, "policies": {name: plain(policy) for name, policy in found.items()}})
        return
    echo(f"✓ {file} can be used: {counted(len(found), 'policy', 'policies')}")
    for name, policy in sorted(found.items()):
        echo(f"    - {name}: {policy_text(plain(policy))}")


@policies.command()
@with_target
@json_option()
def reload(*, target: DeploymentClient, as_json: bool) -> None:
    """Make a running `up` read its rules and policies now instead of about a second after a change."""
    done = target.reload()
    if as_json:
        write_json(asdict(done))
    if done.fault is not None:
        raise ConfigError(f"{done.fault}; the previous rules stay in force")
    if not as_json:
        echo(f"✓ reloaded: {', '.join(done.files)}" if done.files else "it has no files; there is nothing to reload")


def _show_policies(found: list[dict[str, Any]]) -> None:
    own = any(policy_deviations(one) for one in found)
    names = ("Policy", "Requires", "Before", "Within turns", *(["Its own"] if own else []), "Applied", "Source")
    shown = lined_table(*names)
    for one in found:
        within = str(one["within_turns"] or "the session")
        applied = "yes" if one["enabled"] else "no"
        special = [policy_deviations(one)] if own else []
        shown.add_row(
            one["name"], one["requires"], ", ".join(one["before"]), within, *special, applied, str(one["source"])
        )
    console().print(shown)


def _shown(name: str) -> str:
    return "***" if name in _SECRETS else os.environ[name]


@click.group()
def schemas() -> None:
    """Export the JSON Schemas of all events and the AsyncAPI document."""


@schemas.command()
@click.argument("directory", type=click.Path(file_okay=False))
def export(*, directory: str) -> None:
    """Write the schema files into DIRECTORY, which is created if missing."""
    target = Path(directory)
    generated = files("trustfold.schemas").joinpath("generated")
    found = sorted((one for one in generated.iterdir() if one.is_file()), key=lambda one: one.name)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for one in found:
            (target / one.name).write_bytes(one.read_bytes())
            click.echo(target / one.name)
    except OSError as error:
        raise ConfigError(f"{directory}: cannot be written ({error.strerror}); choose another directory") from error
    note(f"{len(found)} files written")

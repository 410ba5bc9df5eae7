"""`trustfold config` and `policies`: show and check the files of rules and prerequisites."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from ..config import ENVIRONMENT, Settings, load_rules, read_document
from ..errors import ConfigError
from ..rules.base import leaves, plain
from ..rules.levels import table
from ..rules.parser import as_toml
from ..rules.rules import Rules
from ..schemas.decision_text import counted
from .clients.selection import rules_options, target_of, target_options
from .render import console, echo, note, write_json
from .settings import place_of, policy_deviations, policy_text, scope_options

_SECRETS = frozenset({"TRUSTFOLD_TOKEN", "TRUSTFOLD_OPERATOR_TOKEN"})


@click.group()
def config() -> None:
    """Show the rules in effect; check a rules file before it is used."""


@config.command()
@rules_options
@click.option("--all", "everything", is_flag=True, help="Include rules with their default value.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with every rule.")
def show(*, rules_file: str | None, policies_file: str | None, everything: bool, as_json: bool) -> None:
    """Print the rules that files and environment give a command here, as TOML that can be used as a rules file.

    What users, workspaces and sessions override on top of it: `trustfold settings`.
    """
    settings = Settings.from_env()
    rules = settings.rules(rules_file, policies_file)
    environment = {name: _shown(name) for name in ENVIRONMENT if os.environ.get(name)}
    files = [str(path) for path in settings.rule_files(rules_file, policies_file).paths]
    if as_json:
        write_json({"files": files, "environment": environment, "rules": plain(rules)})
        return
    for line in (*[f"file {name}" for name in files], *[f"{name}={value}" for name, value in environment.items()]):
        echo(f"# {json.dumps(line, ensure_ascii=False)[1:-1] if not line.isprintable() else line}")
    text = as_toml(rules, everything=everything)
    echo(text, nl=False)
    if not text:
        note("every rule has its default value; --all prints them")


@config.command()
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
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
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
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
    for text in (known.unknown, known.fault and f"{known.fault}; the previous policies stay in force"):
        if text:
            note(text)


@policies.command()
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def validate(*, file: str, as_json: bool) -> None:
    """Check a policies file, TOML or JSON; a fault is reported with its line and the accepted values."""
    found = read_document(file).only_policies().over(Rules()).policies
    if as_json:
        write_json({"file": file, "ok": True, "policies": {name: plain(policy) for name, policy in found.items()}})
        return
    echo(f"✓ {file} can be used: {counted(len(found), 'policy', 'policies')}")
    for name, policy in sorted(found.items()):
        echo(f"    - {name}: {policy_text(plain(policy))}")


@policies.command()
@target_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def reload(*, store: str | None, url: str | None, bootstrap: str | None, as_json: bool) -> None:
    """Make a running `up` read its rules and policies now instead of about a second after a change."""
    done = target_of(store, url, bootstrap).reload()
    if as_json:
        write_json(done._asdict())
    if done.fault is not None:
        raise ConfigError(f"{done.fault}; the previous rules stay in force")
    if not as_json:
        echo(f"✓ reloaded: {', '.join(done.files)}" if done.files else "it has no files; there is nothing to reload")


def _show_policies(found: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.table import Table

    shown = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold")
    own = any(policy_deviations(one) for one in found)
    for name in ("Policy", "Requires", "Before", "Within turns", *(["Its own"] if own else []), "Applied", "Source"):
        shown.add_column(name, overflow="fold")
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

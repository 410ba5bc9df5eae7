"""`trustfold doctor`: checks everything that trustfold needs here; one line each: ok, or what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict

import click
from rich.text import Text

from ..config import EnvironmentSettings
from ..errors import ConfigError, NotInstalled
from ..schemas.decision_text import counted
from ..schemas.topics import TopicRole
from .doctor_machine import (
    KNOWN_VARIABLES,
    CheckFinding,
    CheckStatus,
    disk,
    examine_installation,
    examine_machine,
    is_for_kafka,
)
from .options import bootstrap_option, json_option
from .render import ExitCode, console, note, write_json
from .terminal import BAD, GOOD, QUIET, WARN


@click.command()
@bootstrap_option("without: no Kafka")
@click.option(
    "--role",
    type=click.Choice([str(role) for role in TopicRole]),
    default=str(TopicRole.WORKER),
    show_default=True,
    help="Role whose rights on topics are checked.",
)
@json_option()
def doctor(*, bootstrap: str | None, role: str, as_json: bool) -> None:
    """Check everything that trustfold needs here; each line is ok or says what to do.

    Nothing is changed: no topic, no group, no file. Exit code 0, or 1 if something must be fixed. Without
    TRUSTFOLD_BROKER or --bootstrap only what `up` needs is checked.
    """
    findings: list[CheckFinding] = []
    for one in examine(bootstrap, TopicRole(role)):
        findings.append(one)
        if not as_json:
            _show(one)
    wrong = sum(one.status is CheckStatus.FIX for one in findings)
    if as_json:
        write_json({"ok": not wrong, "checks": [asdict(one) for one in findings]})
    else:
        note(f"{counted(wrong, 'problem')} to fix" if wrong else "no problems found")
    if wrong:
        click.get_current_context().exit(ExitCode.FAILED)


def examine(bootstrap: str | None, role: TopicRole) -> Iterator[CheckFinding]:
    """Findings of all checks, in order."""
    yield from examine_installation()
    try:
        settings = EnvironmentSettings.from_env()
    except ConfigError as error:
        yield CheckFinding("settings", CheckStatus.FIX, str(error), "correct that variable; nothing else was checked")
        return
    yield from examine_machine(settings)
    yield from _kafka(bootstrap, settings, role)


def _kafka(bootstrap: str | None, settings: EnvironmentSettings, role: TopicRole) -> Iterator[CheckFinding]:
    if not bootstrap and not settings.broker:
        set_ = sorted(name for name in os.environ if name in KNOWN_VARIABLES and is_for_kafka(name))
        yield CheckFinding(
            "kafka",
            CheckStatus.FIX if set_ else CheckStatus.SKIPPED,
            f"no broker is named, but {', '.join(set_)} {'is' if len(set_) == 1 else 'are'} set"
            if set_
            else "no broker is named (TRUSTFOLD_BROKER, --bootstrap): only the embedded engine was checked",
            "set TRUSTFOLD_BROKER to host:port" if set_ else "",
        )
        return
    try:
        from .doctor_kafka import examine_kafka
    except ImportError as missing:
        found = str(NotInstalled("Kafka", missing))
        yield CheckFinding("kafka", CheckStatus.FIX, found, "install it, or unset TRUSTFOLD_BROKER")
        return
    yield from examine_kafka(bootstrap, role, disk)


_STYLES = {CheckStatus.OK: GOOD, CheckStatus.NOTE: WARN, CheckStatus.SKIPPED: QUIET, CheckStatus.FIX: BAD}


def _show(one: CheckFinding) -> None:
    line = Text.assemble((f"{one.status:<8}", _STYLES[one.status]), (f"{one.check}: ", "bold"), one.found)
    if one.advice:
        line.append(f"; {one.advice}" if one.status is not CheckStatus.FIX else f"\n        → {one.advice}")
    console(wide_in_pipes=True).print(line)

"""`trustfold dead-letters`: what could not be processed, why, and once more."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

import click
import orjson
from rich import box
from rich.table import Table
from rich.text import Text

from ..schemas.errors import ConfigError
from .output import ExitCode, console, data, note
from .targets import Letter, target_of, target_options
from .words import BAD, QUIET, counted

EXCERPT = 60
"""Characters of a record shown in the list; --json has all of it."""


@click.group("dead-letters")
def dead_letters() -> None:
    """List what could not be processed, and publish it again after a fix."""


@dead_letters.command("list")
@target_options
@click.option("--reason", metavar="CODE", help="Only those with this reason code.")
@click.option("--all", "everything", is_flag=True, help="Also those that were published again.")
@click.option("--json", "as_json", is_flag=True, help="One dead letter a line, with its `ref` for republishing.")
def list_letters(
    *, store: str | None, url: str | None, bootstrap: str | None, reason: str | None, everything: bool, as_json: bool
) -> None:
    """List dead letters, oldest first: what was wrong, where, and what to do about it."""
    letters = _of_reason(target_of(store, url, bootstrap).dead_letters(everything=everything), reason)
    if as_json:
        for letter in letters:
            data().write(orjson.dumps({"ref": letter.ref, **letter.body}, option=orjson.OPT_APPEND_NEWLINE))
        return
    if not letters:
        note("no dead letters")
        return
    console().print(_table(letters))
    reasons = Counter(str(letter.body["reason"]) for letter in letters)
    listed = ", ".join(f"{name} {count:,}" for name, count in reasons.most_common())
    note(f"{counted(len(letters), 'dead letter')}: {listed}")


@dead_letters.command()
@click.argument("refs", nargs=-1, metavar="[REF]...")
@target_options
@click.option("--all", "everything", is_flag=True, help="Every dead letter that was not published again yet.")
@click.option("--reason", metavar="CODE", help="Every one with this reason code.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def republish(
    *,
    refs: tuple[str, ...],
    store: str | None,
    url: str | None,
    bootstrap: str | None,
    everything: bool,
    reason: str | None,
    yes: bool,
) -> None:
    """Publish the records behind dead letters again, byte for byte, to the topics they came from.

    REF is what `dead-letters list` shows. Useful after an upgrade or a change of limits: a record that is wrong in
    itself fails again.
    """
    if not (refs or everything or reason):
        raise ConfigError("name dead letters (REF), or --reason CODE, or --all")
    target = target_of(store, url, bootstrap)
    letters = _of_reason(target.dead_letters(everything=bool(refs)), reason)
    if refs:
        letters = _named(letters, refs)
    if not letters:
        note("no dead letters to publish again")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"this publishes {len(letters)} records again; add --yes to do it without being asked")
        click.confirm(f"Publish {len(letters)} records again at {target.name}?", abort=True, err=True)
    failed = target.republish(letters)
    note(f"{len(letters):,} published again" + (f", {failed:,} failed again" if failed else ""))
    if failed:
        click.get_current_context().exit(ExitCode.FAILED)


def _of_reason(letters: Sequence[Letter], reason: str | None) -> list[Letter]:
    return [letter for letter in letters if reason in {None, letter.body["reason"]}]


def _named(letters: Sequence[Letter], refs: Sequence[str]) -> list[Letter]:
    known = {letter.ref: letter for letter in letters}
    missing = [ref for ref in refs if ref not in known]
    if missing:
        raise ConfigError(f"there is no dead letter {missing[0]}; `trustfold dead-letters list` shows them")
    return [known[ref] for ref in dict.fromkeys(refs)]


def _table(letters: Sequence[Letter]) -> Table:
    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold")
    table.add_column("Ref", no_wrap=True)
    table.add_column("Reason", style=BAD, no_wrap=True)
    table.add_column("Where", no_wrap=True)
    table.add_column("What is wrong", overflow="fold", ratio=3)
    table.add_column("Record", overflow="fold", ratio=2, style=QUIET)
    for letter in letters:
        body = letter.body
        record = str(body.get("value", body.get("value_base64", "")))
        where = f"{body['topic']} {body['path']}"
        excerpt = record if len(record) <= EXCERPT else f"{record[:EXCERPT]}…"
        table.add_row(letter.ref, str(body["reason"]), where, Text(str(body["message"])), Text(excerpt))
    return table

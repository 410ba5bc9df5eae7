"""`trustfold dead-letters`: lists records that could not be processed, and republishes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import click
import orjson
from msgspec.structs import replace
from rich.table import Table
from rich.text import Text

from ..errors import ConfigError
from ..schemas.decision_text import counted
from .clients.client import DeploymentClient, LetterState, ListedLetter, RepublishResult
from .operator import ask
from .options import json_option, with_target
from .render import ExitCode, console, data, note
from .terminal import BAD, QUIET, lined_table

EXCERPT = 60  # Characters of a record shown in the list; --json has all of it


@click.group("dead-letters")
def dead_letters() -> None:
    """List records that could not be processed, and republish them after a fix."""


TABLE_WIDTH = 110  # Least width in characters of a terminal on which the columns of the list fit

_reason = click.option("--reason", metavar="CODE", help="Only those with this reason code.")
_limit = click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum records, oldest first.")


@dead_letters.command("list")
@with_target
@_reason
@_limit
@click.option("--all", "everything", is_flag=True, help="Include those already republished.")
@json_option("One dead letter a line, with `ref` and `state`.")
def list_letters(
    *, target: DeploymentClient, reason: str | None, limit: int | None, everything: bool, as_json: bool
) -> None:
    """List dead letters, oldest first: the fault, its place, and what to do about it.

    Those already republished are left out unless --all is given.
    """
    letters = _of_reason(target.dead_letters(everything=everything), reason)
    shown = letters[:limit]
    if as_json:
        for letter in shown:
            known = {"ref": letter.ref, "state": letter.state, **letter.body}
            data().write(orjson.dumps(known, option=orjson.OPT_APPEND_NEWLINE))
        return
    if not letters:
        note("no dead letters")
        return
    out = console()
    with_state = any(one.state is not LetterState.OPEN for one in shown)
    out.print((_table if out.width >= TABLE_WIDTH else _narrow_table)(shown, with_state=with_state))
    reasons = Counter(str(letter.body["reason"]) for letter in letters)
    listed = ", ".join(f"{name} {count:,}" for name, count in reasons.most_common())
    part = f"{len(shown):,} of " if len(shown) < len(letters) else ""
    note(f"{part}{counted(len(letters), 'dead letter')}: {listed}")


@dead_letters.command()
@click.argument("refs", nargs=-1, metavar="[REF]...")
@with_target
@click.option("--all", "everything", is_flag=True, help="Every dead letter not republished yet.")
@click.option("--reason", metavar="CODE", help="Every one with this reason code.")
@_limit
@click.option("--yes", is_flag=True, help="Do not ask.")
def republish(
    *,
    refs: tuple[str, ...],
    target: DeploymentClient,
    everything: bool,
    reason: str | None,
    limit: int | None,
    yes: bool,
) -> None:
    """Republish the records of dead letters, byte for byte, to the topics they came from.

    REF is shown by `dead-letters list`. Useful after an upgrade or a change of limits: an invalid record
    fails again, as a new dead letter. No record is sent twice.
    """
    if not (refs or everything or reason):
        raise ConfigError("name dead letters (REF), or --reason CODE, or --all")
    letters = _of_reason(target.dead_letters(everything=bool(refs)), reason)
    if refs:
        letters = _named(letters, refs)
    chosen = [letter for letter in letters if letter.state is not LetterState.REPUBLISHED]
    before = len(letters) - len(chosen)
    chosen = chosen[:limit]
    if not chosen:
        note("no dead letters to republish" + (f"; {before:,} were already republished" if before else ""))
        return
    ask(f"Republish {len(chosen)} records at {target.name}?", yes=yes, why=f"this republishes {len(chosen)} records")
    done = target.republish(chosen)
    note(", ".join(_summary(replace(done, before=done.before + before))))
    if done.failed:
        click.get_current_context().exit(ExitCode.FAILED)


def _summary(done: RepublishResult) -> Iterator[str]:
    unknown = done.sent and done.failed is None  # how they end is seen by the workers
    again = " (what still cannot be processed becomes a dead letter again)" if unknown else ""
    yield f"{done.sent:,} published again{again}"
    if done.failed:
        yield f"{done.failed:,} failed again"
    if done.before:
        yield f"{done.before:,} were already"
    if done.claimed:
        yield f"{done.claimed:,} held by another process; if it has ended, run this again in some minutes"


def _of_reason(letters: Sequence[ListedLetter], reason: str | None) -> list[ListedLetter]:
    return [letter for letter in letters if reason in {None, letter.body["reason"]}]


def _named(letters: Sequence[ListedLetter], refs: Sequence[str]) -> list[ListedLetter]:
    known = {str(letter.body.get("id")): letter for letter in letters} | {letter.ref: letter for letter in letters}
    missing = [ref for ref in refs if ref not in known]
    if missing:
        raise ConfigError(f"there is no dead letter {missing[0]}; `trustfold dead-letters list` shows them")
    return list({known[ref].ref: known[ref] for ref in refs}.values())


def _table(letters: Sequence[ListedLetter], *, with_state: bool) -> Table:
    table = lined_table()
    table.add_column("Ref", no_wrap=True)
    if with_state:
        table.add_column("State", no_wrap=True)
    table.add_column("Reason", style=BAD, no_wrap=True)
    table.add_column("Where", no_wrap=True)
    table.add_column("What is wrong", overflow="fold", ratio=3)
    table.add_column("Record", overflow="fold", ratio=2, style=QUIET)
    for letter in letters:
        state = [str(letter.state)] if with_state else []
        table.add_row(letter.ref, *state, str(letter.body["reason"]), *map(Text, _described(letter)))
    return table


def _narrow_table(letters: Sequence[ListedLetter], *, with_state: bool) -> Table:
    """Table for a narrow terminal: what is known of a letter stands in lines of one column."""
    table = lined_table()
    table.add_column("Ref", no_wrap=True)
    table.add_column("Reason, where, what is wrong, record", overflow="fold")
    for letter in letters:
        where, message, excerpt = _described(letter)
        state = f" {letter.state}" if with_state else ""
        head = Text.assemble((str(letter.body["reason"]), BAD), state, " ", where)
        table.add_row(letter.ref, Text("\n").join([head, Text(message), *([Text(excerpt, QUIET)] if excerpt else [])]))
    return table


def _described(letter: ListedLetter) -> tuple[str, str, str]:
    """Place and fault of a dead letter, and the beginning of its record."""
    body = letter.body
    record = str(body.get("value", body.get("value_base64", "")))
    excerpt = record if len(record) <= EXCERPT else f"{record[:EXCERPT]}…"
    return f"{body['topic']} {body['path']}", str(body["message"]), excerpt

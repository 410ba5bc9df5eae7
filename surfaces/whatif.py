"""`trustfold whatif`: the recorded past under other rules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ..config import RuleFiles, Settings
from ..schemas.errors import ConfigError
from ..schemas.rules import Rules
from ..schemas.settings import SettingsOverrides
from .history import history_options, moment_of, open_history
from .output import note, note_any, write_json
from .whatif_view import Folding
from .words import counted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..history.inputs import Inputs
    from ..history.search import Trial, Truth
    from ..history.whatif import Difference, Recorded

WARM_UP = timedelta(days=1)
"""Folded before `--since` so that what sessions share is as it was: the longest window of the shipped rules is an hour,
an escalation lasts a day at most. Sessions, commands and settings are folded from their beginning."""

EVENTS_A_SECOND = 20_000
"""About what one core folds; only for saying beforehand how long it will take."""


@click.command()
@history_options
@click.option("--rules", "rules_file", metavar="FILE", help="The other rules, TOML or JSON.")
@click.option("--against", metavar="FILE", help="Rules to compare with. [default: as recorded, else TRUSTFOLD_RULES]")
@click.option("--examples", type=click.IntRange(0), default=3, show_default=True, help="Examples of each kind.")
@click.option(
    "--search", is_flag=True, help="Try a grid of thresholds instead: alarms in healthy sessions, loops caught."
)
@click.option("--grid", multiple=True, metavar="PATH=V1,V2", help="With --search: values of one threshold. Repeatable.")
@click.option(
    "--labels",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="With --search: which sessions were stuck, as NDJSON.",
)
@click.option("--html", metavar="FILE", help="With --search: a page with the plot.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def whatif(  # noqa: PLR0913 - options of a command
    *,
    root: Path | None,
    since: str | None,
    rules_file: str | None,
    against: str | None,
    examples: int,
    search: bool,
    grid: tuple[str, ...],
    labels: Path | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Fold the recorded inputs again under other rules and show what would have been decided.

    `--rules FILE`: what would have been caught, spared, or said otherwise, with examples. `--search`: try thresholds
    and compare what they catch with what they cost. Nothing is published, nothing changes.
    """
    if search == bool(rules_file):
        raise ConfigError("give either --rules FILE, or --search")
    given = [name for name, value in (("--grid", grid), ("--labels", labels), ("--html", html)) if value]
    if given and not search:
        raise ConfigError(f"{' and '.join(given)} only go with --search")
    settings = Settings.from_env()
    named = settings.rule_files(against).load()
    other = settings.rule_files(rules_file).load()
    environment = settings.environment()
    start = moment_of(since)
    with open_history(root) as connection:
        from ..history.inputs import lined_up

        told = recorded_rules(connection) if against is None else []
        versions = tuple(rules for place, rules in enumerate(told) if rules not in told[:place])
        present = Present(told[-1] if told else named, versions)
        note(_basis(present, settings.rule_files(against)))
        if not told:
            note_any(settings.switched_off)
        with lined_up(connection, start, warm_up(start)) as inputs:
            if not inputs.active:
                raise ConfigError(f"nothing is recorded since {since}; `trustfold history overview` says what is")
            if search:
                _search(connection, inputs, present, environment, grid, labels, html, start, as_json=as_json)
            else:
                note(f"folding {inputs.count:,} recorded inputs under both rules{_lasts(inputs.count, 2)}")
                first = Present(named, present.recorded)
                _told(compare(connection, inputs, first, other, start, examples, environment), start, as_json=as_json)


class Present(NamedTuple):
    """The rules to compare with.

    Attributes:
        rules: those of a file, or the shipped ones; with `recorded`, only until the records tell.
        recorded: the different rules that were in force, as the records tell; the fold follows them.
    """

    rules: Rules
    recorded: tuple[Rules, ...] = ()


class Compared(NamedTuple):
    """A difference, and how true it is.

    Attributes:
        difference: between two rules.
        recorded: what was decided when it was recorded, and how much of that was decided again under the first rules.
        versions: how many different rules were in force, as the records tell; 0: they do not.
        ordered: whether the records have one order; over Kafka each partition has its own.
    """

    difference: Difference
    recorded: Recorded
    versions: int
    ordered: bool = True


def warm_up(since: datetime | None) -> datetime | None:
    """From when on to fold for what is compared from a time on."""
    if since is None:
        return None
    try:
        return since - WARM_UP
    except OverflowError:  # the first day of all
        return since


def recorded_rules(connection: DuckDBPyConnection) -> list[Rules]:
    """The rules that were in force, one after the other; none where the history does not tell (Kafka).

    Raises:
        ConfigError: another version recorded rules that this one does not know.
    """
    from .refold import told_rules

    rows = connection.execute('SELECT record FROM recorded_rules WHERE record IS NOT NULL ORDER BY "offset"').fetchall()
    return [told_rules(record.encode()).base for (record,) in rows]


def _basis(present: Present, files: RuleFiles) -> str:
    """What is compared with, for people."""
    if present.recorded:
        return f"compared with the rules in force when it was recorded ({counted(len(present.recorded), 'version')})"
    where = ", ".join(map(str, files.paths)) or "the shipped rules"
    return f"compared with {where}"


def _lasts(inputs: int, folds: int, cores: int = 1) -> str:
    """About how long folding takes, where that is long enough to say."""
    seconds = inputs * folds / EVENTS_A_SECOND / cores
    return f", about {seconds / 60:.0f} min" if seconds >= 90 else f", about {seconds:.0f} s" if seconds >= 3 else ""


def _told(compared: Compared, since: datetime | None, *, as_json: bool) -> None:
    difference, recorded = compared.difference, compared.recorded
    if as_json:
        write_json(
            {
                "empty": difference.empty,
                "rules_recorded": compared.versions,
                "recorded": recorded.count,
                "recorded_decided_again": recorded.again,
                "recorded_decided_otherwise": recorded.otherwise,
                "kinds": {
                    what: {name: getattr(kind, name) for name in ("before", "after", "added", "gone", "changed")}
                    for what, kind in difference.kinds.items()
                },
                "added": [example._asdict() for example in difference.added],
                "gone": [example._asdict() for example in difference.gone],
                "changed": [example._asdict() for example in difference.changed],
            }
        )
        return
    from .whatif_view import show

    if not difference.kinds:
        note(f"nothing was decided{' since then' if since else ''} under either rules: there is nothing to compare")
    show(difference)
    if recorded.count:
        note(
            f"{recorded.again:,} of {recorded.count:,} recorded decisions were decided again under the rules "
            f"compared with, {recorded.otherwise:,} in other words"
        )
        if recorded.again < recorded.count:
            note(_why_not_all(compared, since))


def _why_not_all(compared: Compared, since: datetime | None) -> str:
    """Why what was decided then was not all decided again."""
    reasons = []
    if not compared.versions:
        reasons.append("other rules were in force then, which are not those compared with")
    if not compared.ordered:
        reasons.append("the workers read the partitions in another order")
    if since is not None:
        reasons.append(f"they depend on what was more than {WARM_UP.days} day before --since")
    why = ", or ".join(reasons) or "the records that they depend on are not kept any more"
    return f"the others: {why}"


def compare(
    connection: DuckDBPyConnection,
    inputs: Inputs,
    present: Present,
    other: Rules,
    since: datetime | None = None,
    examples: int = 3,
    environment: SettingsOverrides | None = None,
) -> Compared:
    """Difference that other rules make to the inputs of a history, in what was decided from a time on."""
    from ..history.whatif import Comparison, Recorded
    from .refold import Refold, fall_due_alike

    since_ms = _ms(since)
    recorded = Recorded(_decisions(connection, since_ms))
    comparison = Comparison(since_ms=since_ms, examples=examples)
    echoes = fall_due_alike(*(present.recorded or (present.rules,)), other)
    before = Refold(present.rules, environment=environment, echoes=echoes, follow=bool(present.recorded))
    after = Refold(other, environment=environment, echoes=echoes)
    with Folding(inputs.count) as progress:
        for given in inputs:
            was, would = before.feed(given), after.feed(given)
            if was or would:
                recorded.find(was)
                comparison.take(was, would)
            progress.advance()
    was, would = before.finish(), after.finish()
    recorded.find(was)
    comparison.take(was, would)
    source = connection.execute("SELECT source FROM recorded_from").fetchone()
    ordered = source is None or not source[0].startswith("kafka ")
    return Compared(comparison.finish(), recorded, len(present.recorded), ordered)


def _ms(since: datetime | None) -> int:
    return int(since.timestamp() * 1000) if since else 0


def _decisions(connection: DuckDBPyConnection, since_ms: int) -> Iterator[tuple[str, str]]:
    cursor = connection.cursor()
    cursor.execute("SELECT id, record FROM decisions WHERE epoch_ms(time) >= ?", [since_ms])
    while page := cursor.fetchmany(5000):
        yield from page


def _search(  # noqa: PLR0913 - options of a command
    connection: DuckDBPyConnection,
    inputs: Inputs,
    present: Present,
    environment: SettingsOverrides,
    grid: tuple[str, ...],
    labels: Path | None,
    html: str | None,
    since: datetime | None,
    *,
    as_json: bool,
) -> None:
    from ..history import search
    from . import trials as trying

    truth = judged(connection, inputs, labels)
    if not truth.healthy or not truth.stuck:
        note(
            f"{len(truth.healthy)} healthy and {len(truth.stuck)} stuck sessions: too few to compare; "
            "record more, or --labels"
        )
    tasks = trying.tasks(
        inputs,
        present.rules,
        grid or search.DEFAULT_GRID,
        truth,
        environment=environment,
        since_ms=_ms(since),
    )
    cores = trying.processes_for(tasks)
    note(
        f"folding {inputs.count:,} recorded inputs under {counted(len(tasks), 'combination')}"
        f"{_lasts(inputs.count, len(tasks), cores)}"
    )
    found: dict[int, Trial] = {}
    with Folding(len(tasks), step=1, what="combinations") as progress:
        for number, trial in trying.try_all(tasks):
            found[number] = trial
            progress.advance()
    trials = [found[number] for number in sorted(found)]
    _show_trials(trials, truth, html, as_json=as_json)


def judged(connection: DuckDBPyConnection, inputs: Inputs, labels: Path | None) -> Truth:
    """Which of the sessions that are folded from their beginning were stuck, and which were healthy.

    Raises:
        ConfigError: the labels cannot be read.
    """
    from ..history import search

    truth = search.labelled(labels) if labels else search.truth_of(connection)
    known = search.recorded_sessions(connection) if inputs.whole is None else inputs.whole
    kept = truth.among(known)
    left_out = len(truth.healthy) + len(truth.stuck) - len(kept.healthy) - len(kept.stuck)
    if left_out:
        why = "are not in the history" if inputs.whole is None else "did not begin since then"
        note(f"{counted(left_out, 'session')} {'that have labels ' if labels else ''}{why}; they do not count")
    return kept


def _show_trials(trials: list[Trial], truth: Truth, html: str | None, *, as_json: bool) -> None:
    from ..history import search

    chosen, one = search.best(trials), search.recommended(trials)
    if as_json:
        write_json(
            [
                {
                    **trial._asdict(),
                    "false_alarms": trial.false_alarms,
                    "recall": trial.recall,
                    "best": trial in chosen,
                    "recommended": trial is one,
                }
                for trial in trials
            ]
        )
    else:
        from .whatif_view import show_trials

        show_trials(trials)
    if html:
        from ..history.page import document, table
        from ..history.plots import points
        from .whatif_view import label, rows_of

        plot = points(
            ((trial.false_alarms, trial.recall, label(trial), trial in chosen) for trial in trials),
            "alarms in healthy sessions", "stuck sessions caught",
        )  # fmt: skip
        counts = f"<p>{len(truth.healthy)} healthy sessions, {len(truth.stuck)} stuck ones.</p>"
        body = f"{counts}{plot}{table(*rows_of(trials))}"
        try:
            Path(html).write_text(document("Thresholds tried", body), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{html}: cannot be written ({error.strerror})") from error
        note(f"{html} written")

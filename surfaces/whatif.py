"""`trustfold whatif`: the recorded past under other rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from ..config import Settings
from ..schemas.errors import ConfigError
from ..schemas.rules import Rules
from ..schemas.settings import SettingsOverrides
from .history import history_options, moment_of, open_history
from .output import note, side_console, write_json

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..history.search import Trial, Truth
    from ..history.whatif import Difference
    from ..projections.emit import Output

STEP = 500
"""Inputs between two moves of the bar."""

WARM_UP = timedelta(days=1)
"""Folded before `--since` so that states are as they were; the longest window of the shipped rules is an hour, an
escalation lasts a day at most."""


@click.command()
@history_options
@click.option("--rules", "rules_file", metavar="FILE", help="The other rules, TOML or JSON.")
@click.option("--against", metavar="FILE", help="Rules to compare with. [default: those in force: TRUSTFOLD_RULES]")
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
    lost = [name for name, given in (("--grid", grid), ("--labels", labels), ("--html", html)) if given and not search]
    if lost:
        raise ConfigError(f"{' and '.join(lost)} only go with --search")
    settings = Settings.from_env()
    present = settings.rule_files(against).load()
    other = settings.rule_files(rules_file).load() if rules_file else present
    environment = settings.environment()
    start = moment_of(since)
    with open_history(root) as connection:
        from ..history.inputs import prepare

        count = prepare(connection, start - WARM_UP if start else None)
        if not count:
            raise ConfigError(f"nothing is recorded since {since}; `trustfold history overview` says what is")
        note(f"folding {count:,} recorded inputs")
        if search:
            _search(connection, present, environment, grid, labels, html, start, as_json=as_json)
        else:
            with _Bar("folding", count) as bar:
                told = compare(connection, present, other, start, examples, environment=environment, step=bar.step)
            _told(*told, as_json=as_json)


def _told(difference: Difference, again: int, recorded: int, *, as_json: bool) -> None:
    if as_json:
        write_json(
            {
                "empty": difference.empty,
                "recorded": recorded,
                "recorded_decided_again": again,
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

    show(difference)
    if recorded:
        note(f"{again:,} of {recorded:,} recorded decisions were decided again under the rules compared with")
        if again < recorded:
            note("the others were made under other rules, or depended on the order in which partitions were read")


def compare(
    connection: DuckDBPyConnection,
    present: Rules,
    other: Rules,
    since: datetime | None = None,
    examples: int = 3,
    *,
    environment: SettingsOverrides | None = None,
    step: Callable[[], None] = lambda: None,
) -> tuple[Difference, int, int]:
    """Difference between two sets of rules over the inputs lined up in a connection.

    Returns it with how many of the recorded decisions were decided again under `present`, and how many there are: the
    measure of how true the comparison is. `step` is called after every input.
    """
    from ..history.inputs import inputs
    from ..history.whatif import Comparison
    from .refold import Refold, fall_due_alike

    since_ms = int(since.timestamp() * 1000) if since else 0
    recorded = {
        row[0]
        for row in connection.execute("SELECT id FROM decisions WHERE epoch_ms(time) >= ?", [since_ms]).fetchall()
    }
    comparison = Comparison(since_ms=since_ms, examples=examples)
    echoes = fall_due_alike(present, other)
    before, after = (Refold(rules, environment=environment, echoes=echoes) for rules in (present, other))
    again = 0
    for given in inputs(connection):
        was, would = before.feed(given), after.feed(given)
        again += sum(output.id in recorded for output in was if output.id)
        comparison.take(was, would)
        step()
    was, would = before.finish(), after.finish()
    again += sum(output.id in recorded for output in was if output.id)
    comparison.take(was, would)
    return comparison.finish(), again, len(recorded)


def _search(
    connection: DuckDBPyConnection,
    present: Rules,
    environment: SettingsOverrides,
    grid: tuple[str, ...],
    labels: Path | None,
    html: str | None,
    since: datetime | None,
    *,
    as_json: bool,
) -> None:
    from ..history import search

    known = search.recorded_sessions(connection, since)
    truth = search.labelled(labels) if labels else search.truth_of(connection, since)
    told = len(truth.healthy | truth.stuck)
    truth = search.Truth(truth.healthy & known, truth.stuck & known)
    if missing := told - len(truth.healthy | truth.stuck):
        note(f"{missing:,} of {told:,} labelled sessions are not recorded, or not since then; they count for nothing")
    if not truth.healthy or not truth.stuck:
        note(
            f"{len(truth.healthy)} healthy and {len(truth.stuck)} stuck sessions: too few to compare; "
            "record more, or --labels"
        )
    trials = run_grid(connection, present, grid or search.DEFAULT_GRID, truth, environment=environment, since=since)
    if as_json:
        write_json(
            [{**trial._asdict(), "false_alarms": trial.false_alarms, "recall": trial.recall} for trial in trials]
        )
    else:
        from .whatif_view import show_trials

        show_trials(trials)
    if html:
        from ..history.page import document, plotted, table
        from ..history.plots import points
        from .whatif_view import label, rows_of

        chosen = search.best(trials)
        plot = points(
            ((trial.false_alarms, trial.recall, label(trial), trial in chosen) for trial in trials),
            "alarms in healthy sessions", "stuck sessions caught",
        )  # fmt: skip
        counted = f"<p>{len(truth.healthy)} healthy sessions, {len(truth.stuck)} stuck ones.</p>"
        body = f"{counted}{plotted(plot, 'Thresholds tried')}{table(*rows_of(trials))}"
        try:
            Path(html).write_text(document("Thresholds tried", body), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{html}: cannot be written ({error.strerror})") from error
        note(f"{html} written")


def run_grid(
    connection: DuckDBPyConnection,
    present: Rules,
    grid: tuple[str, ...],
    truth: Truth,
    *,
    environment: SettingsOverrides | None = None,
    since: datetime | None = None,
) -> list[Trial]:
    """Fold everything once for each combination of a grid; alarms count from `since` on."""
    from rich.progress import track

    from ..history import search
    from ..history.inputs import inputs
    from .refold import Refold, fall_due_alike

    chosen = search.combinations(grid, present)
    types = search.alarm_types(grid)
    terminal = side_console()
    steps = track(chosen, "trying", console=terminal, transient=True, disable=not terminal.is_terminal)
    echoes = all(fall_due_alike(present, rules) for _, rules in chosen)
    since_ms = int(since.timestamp() * 1000) if since else 0

    def outputs(rules: Rules) -> Iterator[Output]:
        folded = Refold(rules, environment=environment, echoes=echoes).run(inputs(connection))
        return (output for output in folded if output.time_ms >= since_ms)

    return [search.try_out(values, outputs(rules), types, truth) for values, rules in steps]


class _Bar:
    """How far a fold is, on standard error where that is a terminal."""

    def __init__(self, what: str, total: int) -> None:
        from rich.progress import Progress

        terminal = side_console()
        self._bar = Progress(console=terminal, transient=True, disable=not terminal.is_terminal)
        self._task = self._bar.add_task(what, total=total)
        self._done = 0

    def step(self) -> None:
        """One input more."""
        self._done += 1
        if self._done % STEP == 0:
            self._bar.update(self._task, completed=self._done)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

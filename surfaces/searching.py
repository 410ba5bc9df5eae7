"""`trustfold whatif --search`: which thresholds catch what is stuck, and what they cost in false alarms."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..schemas.decision_words import counted
from ..schemas.errors import ConfigError
from ..schemas.private_files import open_private
from ..schemas.settings import SettingsOverrides
from .comparing import Present, milliseconds
from .output import note, write_json
from .whatif_view import Folding, lasts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..history.inputs import Inputs
    from ..history.search import Trial, Truth


def search_thresholds(  # noqa: PLR0913 - options of a command
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
    """Try combinations of thresholds and show what they catch and what they cost.

    Raises:
        ConfigError: the grid, the labels or the page.
    """
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
        since_ms=milliseconds(since),
    )
    cores = trying.processes_for(tasks)
    note(
        f"folding {inputs.count:,} recorded inputs under {counted(len(tasks), 'combination')}"
        f"{lasts(inputs.count, len(tasks), cores)}"
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
        why = "are not in the history" if inputs.whole is None else "are not in the history, or began before --since"
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
        from ..history.page import document, figure, table
        from ..history.plots import points
        from .whatif_view import label, rows_of

        plot = points(
            ((trial.false_alarms, trial.recall, label(trial), trial in chosen) for trial in trials),
            "alarms in healthy sessions", "stuck sessions caught",
        )  # fmt: skip
        found = "The best of the tried thresholds are marked."
        counts = f"<p>{len(truth.healthy)} healthy sessions, {len(truth.stuck)} stuck ones.</p>"
        body = counts + figure(plot, "Thresholds tried", found, table(*rows_of(trials)))
        try:
            with open_private(html) as file:
                file.write(document("Thresholds tried", body).encode())
        except OSError as error:
            raise ConfigError(f"{html}: cannot be written ({error.strerror})") from error
        note(f"{html} written")

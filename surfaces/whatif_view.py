"""What other rules would have decided, and what thresholds catch and cost, for people."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .output import console, note, side_console

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..history.search import Trial
    from ..history.whatif import Difference

EVENTS_A_SECOND = 20_000
"""About what one core folds; only for saying beforehand how long it will take."""


class Folding:
    """A bar on standard error where that is a terminal, with the time that is left; nothing elsewhere."""

    def __init__(self, total: int, *, step: int = 500, what: str = "inputs") -> None:
        """Prepare for so many things of a name; the bar moves every `step` of them."""
        self._total, self._step, self._what = total, step, what
        self._done = 0
        self._bar: Progress | None = None

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        if self._bar is not None and self._done % self._step == 0:
            self._bar.update(self._task, completed=self._done)

    def __enter__(self) -> Self:
        """Show the bar."""
        console = side_console()
        if console.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn(self._what), TimeRemainingColumn())
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take it away again."""
        if self._bar is not None:
            self._bar.stop()


def show(difference: Difference) -> None:
    """Counts of every kind of decision that differs, and examples."""
    from .history_view import table_of

    if difference.empty:
        console().print("No difference: these rules decide the same.")
        return
    columns = ("decision", "before", "after", "added", "gone", "changed")
    rows = [
        (what, kind.before, kind.after, kind.added, kind.gone, kind.changed)
        for what, kind in difference.kinds.items()
        if kind.differs
    ]
    console().print(table_of(columns, rows, "What the other rules decide"))
    for title, examples in (
        ("Would have been caught", difference.added),
        ("Would have been spared", difference.gone),
        ("Would have been said otherwise", difference.changed),
    ):
        if examples:
            shown = [(e.what, e.time[:19], e.session, e.subject, e.after or e.before or e.reason) for e in examples]
            console().print(table_of(("decision", "time", "session", "about", "how"), shown, title))


def label(trial: Trial) -> str:
    """A combination in words."""
    values = ", ".join(f"{path}={value}" for path, value in trial.values.items())
    return f"{values}: {trial.false_alarms:.1%} of healthy, {trial.recall:.0%} of stuck sessions"


def rows_of(trials: list[Trial]) -> tuple[list[str], list[list[Any]]]:
    """Trials as columns and rows; the best ones are marked."""
    from ..history.search import best, recommended

    chosen, one = best(trials), recommended(trials)
    names = [name.removesuffix(".minor").rpartition(".")[2] for name in (trials[0].values if trials else ())]
    columns = [*names, "healthy with alarm", "share", "stuck caught", "share caught", "alarms", ""]
    rows = [
        [
            *trial.values.values(),
            f"{trial.alarmed} of {trial.healthy}",
            f"{trial.false_alarms:.1%}",
            f"{trial.caught} of {trial.stuck}",
            f"{trial.recall:.1%}",
            trial.alarms,
            " ".join(
                word for word, holds in (("◀", trial in chosen), ("★", trial is one), ("now", trial.in_force)) if holds
            ),
        ]
        for trial in trials
    ]
    return columns, rows


def show_trials(trials: list[Trial]) -> None:
    """The trials as a table and as a plot."""
    from .history_view import table_of

    columns, rows = rows_of(trials)
    console().print(table_of(columns, rows, "Thresholds tried"))
    console().print(scatter(trials))
    note("◀ no other combination catches as many with fewer alarms in healthy sessions; now: the rules in force")
    note("★ the share of stuck sessions caught exceeds that of healthy ones with an alarm most (Youden's J)")


def scatter(trials: list[Trial], *, width: int = 60, height: int = 12) -> str:
    """The trade-off as characters: loops caught upwards, alarms in healthy sessions to the right."""
    from ..history.search import best

    chosen = best(trials)
    widest = max((trial.false_alarms for trial in trials), default=0.0) or 0.01
    field = [[" "] * (width + 1) for _ in range(height + 1)]
    for trial in sorted(trials, key=lambda one: one in chosen):
        column = round(trial.false_alarms / widest * width)
        field[round((1 - trial.recall) * height)][column] = "●" if trial in chosen else "·"
    lines = ["".join(line).rstrip() for line in field]
    lines = [f"100% ┤{lines[0]}", *(f"     │{line}" for line in lines[1:-1]), f"  0% ┤{lines[-1]}"]
    axis = f"      0% alarms in healthy sessions{widest:>{width - 29}.1%}"
    return "\n".join(["stuck sessions caught", *lines, f"     └{'─' * width}", axis])


def lasts(inputs: int, folds: int, cores: int = 1) -> str:
    """About how long folding takes, where that is long enough to say."""
    seconds = inputs * folds / EVENTS_A_SECOND / cores
    return f", about {seconds / 60:.0f} min" if seconds >= 90 else f", about {seconds:.0f} s" if seconds >= 3 else ""

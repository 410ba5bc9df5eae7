"""`trustfold whatif`: replays the history under other rules."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..config import EnvironmentSettings, RuleFiles
from ..errors import ConfigError
from ..history.filters import HistoryFilters
from ..schemas.decision_text import counted
from .checks import CallChecker
from .history import HistoryChoice, history_options, open_history
from .options import json_option
from .render import note, note_any, write_json
from .terminal import ProgressBar
from .whatif_view import lasts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..history.inputs import InputFile
    from ..history.whatif.compare import ComparisonResult
    from ..history.whatif.rules_replay import PresentRules, RecordedInputs

# Time folded before `--since` to restore state shared by sessions: the longest default window is an hour, an escalation
# lasts a day at most. Sessions, commands and settings are folded from their beginning.
WARM_UP = timedelta(days=1)

EXAMPLES = 3  # Default number of examples of each kind of decision
ROWS = 20  # Default number of streaks and incidents shown
INTERRUPTED = "were folded; nothing is shown"  # End of the note after Ctrl-C

# Queries of the catalogue that a comparison reads
_READS = (
    "events decisions tool_calls recorded_events recorded_commands recorded_settings recorded_rules "
    "recorded_outcomes recorded_standings recorded_from"
)


class ReplayInputs(NamedTuple):
    """Inputs of a comparison."""

    material: RecordedInputs  # inputs to fold, and which of them count
    filtered: DuckDBPyConnection  # connection with the filters
    filters: HistoryFilters  # filters on the history
    present: PresentRules  # the rules to compare with

    @property
    def inputs(self) -> InputFile:
        """Inputs to fold."""
        return self.material.inputs


@click.command()
@history_options
@click.option("--rules", "rules_file", metavar="FILE", required=True, help="Rules to try, TOML or JSON.")
@click.option("--against", metavar="FILE", help="Rules to compare with. [default: as recorded, else TRUSTFOLD_RULES]")
@click.option("--examples", type=click.IntRange(0), default=EXAMPLES, show_default=True, help="Examples a kind.")
@click.option("--limit", type=click.IntRange(0), default=ROWS, show_default=True, help="Streaks and incidents shown.")
@json_option()
def whatif(
    *,
    chosen: HistoryChoice,
    rules_file: str,
    against: str | None,
    examples: int,
    limit: int,
    as_json: bool,
) -> None:
    """Replay the recorded inputs under other rules and show which decisions differ.

    Shows streaks and incidents caught, missed, or detected earlier or later. Nothing is published or changed.
    """
    if len(chosen.roots) > 1:
        raise ConfigError("--history is given several times: histories have no common order; replay them one by one")
    settings = EnvironmentSettings.from_env()
    other = settings.rule_files(rules_file).load()
    with _interruptible(), _replay_inputs(chosen, settings, against) as recorded:
        from ..history.whatif.compare import compare, decisions_of

        note(f"folding {recorded.inputs.count:,} recorded inputs under both rules{lasts(recorded.inputs.count, 2)}")
        with ProgressBar(recorded.inputs.count, "inputs", interrupted=INTERRUPTED) as progress:
            compared = compare(
                recorded.material,
                recorded.present,
                other,
                decided=decisions_of(recorded.filtered),
                examples=examples,
                advance=progress.advance,
            )
        _show_comparison(compared, recorded.filters, limit, as_json=as_json)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that temporary files are deleted."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _replay_inputs(chosen: HistoryChoice, settings: EnvironmentSettings, against: str | None) -> Iterator[ReplayInputs]:
    """Load the history for folding; records without rules are compared with those of `against` or the environment."""
    files = settings.rule_files(against)
    base = files.load()
    filters = chosen.filters
    with (
        open_history(chosen.roots, query=_READS) as everything,
        open_history(chosen.roots, filters, query=_READS) if chosen.narrowed else nullcontext(everything) as filtered,
    ):
        from ..history.inputs import lined_up
        from ..history.whatif.decision_filters import passing
        from ..history.whatif.rules_replay import PresentRules, RecordedInputs, has_sessions, recorded_rules

        recorded = recorded_rules(everything) if against is None else []
        versions = tuple(rules for place, rules in enumerate(recorded) if rules not in recorded[:place])
        note(_basis(versions, files))
        if not recorded:
            note_any(settings.switched_off)
        if not has_sessions(filtered):
            raise ConfigError(
                f"no recorded session passes: {filters.description() or 'there is no session'}; "
                "`trustfold history overview` shows what is recorded"
            )
        if chosen.narrowed:
            note(f"only {filters.description()}; everything they depend on is folded")
        with lined_up(everything, filters.since, warm_up(filters.since)) as inputs:
            present = PresentRules(base, versions)
            material = RecordedInputs(
                everything, inputs, passing(everything, filters), settings.environment(), CallChecker
            )
            yield ReplayInputs(material, filtered, filters, present)


def warm_up(since: datetime | None) -> datetime | None:
    """Time to start folding, for a comparison that starts at a time."""
    if since is None:
        return None
    try:
        return since - WARM_UP
    except OverflowError:  # the earliest possible date
        return since


def _basis(recorded: tuple[Any, ...], files: RuleFiles) -> str:
    """Description of the rules compared with."""
    if recorded:
        return f"compared with the rules in force when it was recorded ({counted(len(recorded), 'version')})"
    where = ", ".join(map(str, files.paths)) or "the shipped rules"
    return f"compared with {where}"


def _show_comparison(compared: ComparisonResult, filters: HistoryFilters, limit: int, *, as_json: bool) -> None:
    from . import whatif_view as view

    if as_json:
        write_json(view.comparison_as_json(compared, filters, limit))
        return
    difference, recorded = compared.difference, compared.recorded
    if not difference.kinds:
        since = f" {filters.description()}" if filters.description() else ""
        note(f"no decisions{since} under either rules: nothing to compare")
    view.show_comparison(compared, limit)
    if recorded.count:
        note(
            f"{recorded.again:,} of {recorded.count:,} recorded decisions were decided again under the rules "
            f"compared with, {recorded.otherwise:,} in other words"
        )
        if recorded.again < recorded.count:
            note(_why_not_all(compared, filters.since))


def _why_not_all(compared: ComparisonResult, since: datetime | None) -> str:
    """Possible reasons why the replay did not reproduce all recorded decisions."""
    reasons = []
    if not compared.versions:
        reasons.append("the rules in force at the time differ from those compared with")
    if not compared.ordered:
        reasons.append("the workers read the partitions in another order")
    if since is not None:
        reasons.append(f"they depend on events more than {WARM_UP.days} day before --since")
    why = ", or ".join(reasons) or "the records they depend on were deleted"
    return f"the others: {why}"

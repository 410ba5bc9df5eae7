"""`trustfold whatif`: replays the history under other rules."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..config import RuleFiles, Settings
from ..errors import ConfigError, TrustfoldError
from ..history.filters import Filters
from ..schemas.decision_text import counted
from ..security.private_files import replace_file
from .checks import Checker
from .history import Chosen, history_options, open_history
from .options import json_option
from .render import cannot_write, note, note_any, write_json, write_output
from .terminal import Progress
from .whatif_view import lasts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..history.inputs import Inputs
    from ..history.whatif.compare import Compared
    from ..history.whatif.replay import Material, Present
    from ..history.whatif.search import Found, Wanted

WARM_UP = timedelta(days=1)
"""Time folded before `--since` to restore state shared by sessions: the longest default window is an hour,
an escalation lasts a day at most. Sessions, commands and settings are folded from their beginning."""

EXAMPLES = 3
"""Default number of examples of each kind of decision."""

ROWS = 20
"""Default number of streaks and incidents shown."""

SEED = 0
"""Default seed of the selection of held-out sessions."""


INTERRUPTED = "were folded; nothing is shown or written"
"""End of the note after Ctrl-C."""

_READS = (
    "events decisions tool_calls loops false_alarms recorded_events recorded_commands recorded_settings recorded_rules "
    "recorded_outcomes recorded_standings recorded_from"
)
"""Queries of the catalogue that folding and judging need."""


class ReplayInputs(NamedTuple):
    """Inputs of a comparison and of a search.

    Attributes:
        material: inputs to fold, and which of them count.
        filtered: connection with the filters.
        filters: filters on the history.
        present: the rules to compare with.
    """

    material: Material
    filtered: DuckDBPyConnection
    filters: Filters
    present: Present

    @property
    def inputs(self) -> Inputs:
        """Inputs to fold."""
        return self.material.inputs


@click.command()
@history_options
@click.option("--rules", "rules_file", metavar="FILE", help="Rules to try, TOML or JSON.")
@click.option("--against", metavar="FILE", help="Rules to compare with. [default: as recorded, else TRUSTFOLD_RULES]")
@click.option("--examples", type=click.IntRange(0), help=f"Examples per kind of decision. [default: {EXAMPLES}]")
@click.option("--limit", type=click.IntRange(0), help=f"Number of streaks and of incidents to show. [default: {ROWS}]")
@click.option("--search", is_flag=True, help="Try a grid of thresholds: false alarms against stuck sessions caught.")
@click.option("--grid", multiple=True, metavar="PATH=V1,V2", help="With --search: values of a threshold; repeatable.")
@click.option(
    "--labels",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="With --search: NDJSON that labels sessions as stuck or healthy.",
)
@click.option(
    "--hold-out",
    type=click.FloatRange(0, 0.9),
    metavar="SHARE",
    help="With --search: fraction of labelled sessions held out to check the choice. [default: 0.3]",
)
@click.option("--seed", type=int, help=f"With --search: seed that selects these sessions. [default: {SEED}]")
@click.option(
    "--weight-false-alarm",
    type=click.FloatRange(0),
    metavar="W",
    help="With --search: cost of an alarm in a healthy session. [default: both rates weigh the same]",
)
@click.option(
    "--weight-miss",
    type=click.FloatRange(0),
    metavar="W",
    help="With --search: cost of a stuck session without an alarm.",
)
@click.option(
    "--write", metavar="FILE", type=click.Path(path_type=Path), help="With --search: write the chosen rules, as TOML."
)
@click.option("--force", is_flag=True, help="With --write: replace an existing file.")
@click.option("--html", metavar="FILE", help="With --search: write an HTML page with the plot.")
@json_option()
def whatif(
    *,
    chosen: Chosen,
    rules_file: str | None,
    against: str | None,
    examples: int | None,
    limit: int | None,
    search: bool,
    as_json: bool,
    force: bool,
    **searching: Any,
) -> None:
    """Replay the recorded inputs under other rules and show which decisions differ.

    `--rules FILE`: shows streaks and incidents caught, missed, or detected earlier or later. `--search`: tries
    thresholds, chooses the cheapest, and shows its costs. Nothing is published or changed.
    """
    if search == bool(rules_file):
        raise ConfigError("give either --rules FILE, or --search")
    _refuse_unused(search=search, searching=searching, comparing={"examples": examples, "limit": limit})
    if force and not searching["write"]:
        raise ConfigError("--force goes with --write FILE")
    if len(chosen.roots) > 1:
        raise ConfigError("--history is given several times: histories have no common order; replay them one by one")
    settings = Settings.from_env()
    if search:
        wanted = _wanted(searching)
        for file in filter(None, (searching["write"], searching["html"])):
            _check_place(Path(file), replace=force or file == searching["html"], toml=file == searching["write"])
        with _interruptible(), _replay_inputs(chosen, settings, against) as recorded:
            _search(recorded, wanted, searching["labels"], searching["write"], searching["html"], as_json=as_json)
        return
    other = settings.rule_files(rules_file).load()
    with _interruptible(), _replay_inputs(chosen, settings, against, named=True) as recorded:
        from ..history.whatif.compare import compare, decisions_of

        note(f"folding {recorded.inputs.count:,} recorded inputs under both rules{lasts(recorded.inputs.count, 2)}")
        with Progress(recorded.inputs.count, "inputs", interrupted=INTERRUPTED) as progress:
            compared = compare(
                recorded.material,
                recorded.present,
                other,
                decided=decisions_of(recorded.filtered),
                examples=EXAMPLES if examples is None else examples,
                advance=progress.advance,
            )
        _show_comparison(compared, recorded.filters, ROWS if limit is None else limit, as_json=as_json)


def _refuse_unused(*, search: bool, searching: dict[str, Any], comparing: dict[str, Any]) -> None:
    """Refuse options that the chosen mode does not use.

    Raises:
        ConfigError: naming them.
    """
    unused = comparing if search else searching
    given = [f"--{name.replace('_', '-')}" for name, value in unused.items() if value not in (None, ())]
    if given:
        goes = "goes" if len(given) == 1 else "go"
        raise ConfigError(f"{' and '.join(given)} only {goes} with {'--rules' if search else '--search'}")


def _wanted(searching: dict[str, Any]) -> Wanted:
    """Weights and hold-out given by the options.

    Raises:
        ConfigError: the weights are negative or all 0.
    """
    from ..history.whatif.choice import HOLD_OUT
    from ..history.whatif.grid import DEFAULT_GRID
    from ..history.whatif.search import Wanted

    weights = searching["weight_false_alarm"], searching["weight_miss"]
    if not all(weight is None or isfinite(weight) for weight in weights) or not any(w is None or w for w in weights):
        raise ConfigError("--weight-false-alarm and --weight-miss must be 0 or more, and not both 0")
    hold_out, seed = searching["hold_out"], searching["seed"]
    return Wanted(
        grid=searching["grid"] or DEFAULT_GRID,
        false_alarm=weights[0],
        miss=weights[1],
        hold_out=HOLD_OUT if hold_out is None else hold_out,
        seed=SEED if seed is None else seed,
    )


def _check_place(file: Path, *, replace: bool, toml: bool) -> None:
    """Refuse, before folding, a file that could not be written afterwards.

    Raises:
        ConfigError: the file cannot be written; the message says why.
    """
    if toml and file.suffix.lower() == ".json":
        raise ConfigError(f"{file}: rules are written as TOML, and a name in .json is read as JSON; name it .toml")
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise ConfigError(f"{file}: cannot be written; name a file in a directory that exists")
    if file.exists() and not replace:
        raise ConfigError(f"{file}: exists already; name another file, or add --force to replace it")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that temporary files are deleted."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _replay_inputs(
    chosen: Chosen, settings: Settings, against: str | None, *, named: bool = False
) -> Iterator[ReplayInputs]:
    """Load the history for folding.

    With `named`, records without rules are compared with the rules of `against` or the environment, else with the last
    recorded ones.

    Raises:
        ConfigError: no record passes the filters, or the rules are invalid.
    """
    files = settings.rule_files(against)
    base = files.load()
    filters = chosen.filters
    with (
        open_history(chosen.roots, query=_READS) as everything,
        open_history(chosen.roots, filters, query=_READS) if chosen.narrowed else nullcontext(everything) as filtered,
    ):
        from ..history.inputs import lined_up
        from ..history.whatif.decision_filters import passing
        from ..history.whatif.labels import recorded_sessions
        from ..history.whatif.replay import Material, Present, recorded_rules

        recorded = recorded_rules(everything) if against is None else []
        versions = tuple(rules for place, rules in enumerate(recorded) if rules not in recorded[:place])
        note(_basis(versions, files))
        if not recorded:
            note_any(settings.switched_off)
        if not recorded_sessions(filtered):
            raise ConfigError(
                f"no recorded session passes: {filters.description() or 'there is no session'}; "
                "`trustfold history overview` shows what is recorded"
            )
        if chosen.narrowed:
            note(f"only {filters.description()}; everything they depend on is folded")
        with lined_up(everything, filters.since, warm_up(filters.since)) as inputs:
            present = Present(base if named or not recorded else recorded[-1], versions)
            material = Material(everything, inputs, passing(everything, filters), settings.environment(), Checker)
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


def _show_comparison(compared: Compared, filters: Filters, limit: int, *, as_json: bool) -> None:
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


def _why_not_all(compared: Compared, since: datetime | None) -> str:
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


def _search(
    recorded: ReplayInputs, wanted: Wanted, labels: Path | None, write: Path | None, html: str | None, *, as_json: bool
) -> None:
    """Try combinations of thresholds, show their detections and costs, and write the choice.

    Raises:
        ConfigError: the grid, the labels or a file is invalid.
        TrustfoldError: there is no choice to write.
    """
    from ..history.whatif.grid import alarm_of, chosen, patterns_of, processes_for
    from ..history.whatif.search import judged, search
    from . import whatif_view as view

    alarm, patterns = alarm_of(wanted.grid), patterns_of(wanted.grid)
    tried = len(chosen(wanted.grid, recorded.present.rules))
    known = judged(recorded.filtered, recorded.inputs, labels, alarm, patterns)
    if known.left_out:
        of = "that have labels " if labels else ""
        since = ", or began before --since" if recorded.inputs.whole is not None else ""
        note(f"{counted(known.left_out, 'session')} {of}are not in the history{since}; they do not count")
    note(view.judged_in_words(known, alarm, labels))
    count = recorded.inputs.count
    note(
        f"folding {count:,} recorded inputs under {counted(tried, 'combination')}"
        f"{lasts(count, tried, 2 * processes_for(recorded.inputs, tried))}"
    )
    what = f"inputs of {counted(tried, 'combination')}"
    with Progress(count * tried, what, interrupted=INTERRUPTED) as progress:
        found = search(recorded.material, recorded.present.rules, wanted, known, progress=progress.reached)
    if as_json:
        write_json(view.search_as_json(found, wanted))
    else:
        view.show_search(found, wanted)
    if html:
        write_output(html, view.search_as_page(found, known, wanted))
        note(f"{html} written")
    if write:
        _write_rules(found, recorded, wanted, labels, write)


def _write_rules(found: Found, recorded: ReplayInputs, wanted: Wanted, labels: Path | None, file: Path) -> None:
    """Write the chosen rules.

    Raises:
        TrustfoldError: there is no choice, or it equals the rules in force.
        ConfigError: the file cannot be written.
    """
    from ..history.whatif.rules_file import toml_of
    from . import whatif_view as view

    if found.chosen is None:
        raise TrustfoldError(f"{file} was not written: too few sessions to choose from")
    if found.trials[found.chosen].in_force:
        raise TrustfoldError(f"{file} was not written: no other combination costs less than the rules in force")
    days = recorded.filtered.execute("SELECT min(time)::DATE, max(time)::DATE, count(*) FROM events").fetchone()
    first, last, events = days or (None, None, 0)
    filters = recorded.filters.description()
    basis = [
        f"From {events:,} events, {first} to {last}{f' ({filters})' if filters else ''}.",
        _sentence(view.judged_in_words(found.judged, found.alarm, labels)),
        _sentence(view.split_in_words(found, wanted)),
        _sentence(view.weights_in_words(found.weigh)),
    ]
    try:
        replace_file(file, toml_of(found, basis))
    except OSError as error:
        raise cannot_write(file, error) from error
    note(f"{file} written; `trustfold config check {file}`, `trustfold whatif --rules {file}`")


def _sentence(text: str) -> str:
    """A text with its first letter capitalised and a full stop; other capitals are kept."""
    return f"{text[:1].upper()}{text[1:]}."

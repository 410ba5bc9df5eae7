"""`trustfold whatif`: the recorded past under other rules."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import click

from ..config import RuleFiles, Settings
from ..history.filters import moment_of
from ..schemas.decision_words import counted
from ..schemas.errors import ConfigError
from .comparing import Compared, Present, compare, recorded_rules
from .history import open_history, place_option, since_option
from .output import note, note_any, write_json
from .searching import search_thresholds
from .whatif_view import lasts

WARM_UP = timedelta(days=1)
"""Folded before `--since` so that what sessions share is as it was: the longest window of the shipped rules is an hour,
an escalation lasts a day at most. Sessions, commands and settings are folded from their beginning."""


@click.command()
@place_option(multiple=False)
@since_option
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
    with open_history((root,) if root else ()) as connection:
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
                search_thresholds(connection, inputs, present, environment, grid, labels, html, start, as_json=as_json)
            else:
                note(f"folding {inputs.count:,} recorded inputs under both rules{lasts(inputs.count, 2)}")
                first = Present(named, present.recorded)
                _told(compare(connection, inputs, first, other, start, examples, environment), start, as_json=as_json)


def warm_up(since: datetime | None) -> datetime | None:
    """From when on to fold for what is compared from a time on."""
    if since is None:
        return None
    try:
        return since - WARM_UP
    except OverflowError:  # the first day of all
        return since


def _basis(present: Present, files: RuleFiles) -> str:
    """What is compared with, for people."""
    if present.recorded:
        return f"compared with the rules in force when it was recorded ({counted(len(present.recorded), 'version')})"
    where = ", ".join(map(str, files.paths)) or "the shipped rules"
    return f"compared with {where}"


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

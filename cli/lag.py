"""`trustfold lag`: how far workers and recorders are behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.table import Table

from ..schemas.topics import TOPICS
from .clients.kafka_log import KafkaSettings, run
from .options import bootstrap_option, json_option
from .render import ExitCode, console, note, write_json
from .terminal import BAD, lined_table

if TYPE_CHECKING:
    from ..streams.kafka.lag import PartitionLag


class GroupLag(NamedTuple):
    """Consumer group and its lag."""

    role: str  # `worker` or `recorder`
    name: str
    partitions: list[PartitionLag]

    @property
    def records(self) -> int:
        """Number of records behind, over all partitions."""
        return sum(one.records for one in self.partitions)

    @property
    def seconds(self) -> float:
        """Age in seconds of the oldest record behind."""
        return max((one.seconds or 0.0 for one in self.partitions), default=0.0)


@click.command()
@bootstrap_option("default: localhost:9092")
@click.option("--recorder", metavar="GROUP", help="Group of the recorders. [default: APP_ID-history, if there is one]")
@click.option("--max-records", type=click.IntRange(0), metavar="N", help="Exit code 1 if a group is further behind.")
@click.option("--max-seconds", type=click.FloatRange(0), metavar="S", help="Exit code 1 if a group is further behind.")
@json_option()
def lag(
    *, bootstrap: str | None, recorder: str | None, max_records: int | None, max_seconds: float | None, as_json: bool
) -> None:
    """Show how far the workers and recorders are behind: each partition that is, and the sum.

    Records are counted from the offset that the group has committed to the end of the log; workers commit once a
    second, so some are always open under load. Seconds are the age of the next record to read. --json has all
    partitions. Exit code 0 whatever the lag is, unless --max-records or --max-seconds is given.
    """
    settings = KafkaSettings.from_env(bootstrap=bootstrap)
    groups = run(settings, group_lags(settings, recorder))
    if as_json:
        write_json({"broker": settings.bootstrap, "groups": [_plain(group) for group in groups]})
    else:
        table = _table(groups)
        if table.row_count:
            console(wide_in_pipes=True).print(table)
    for group in groups:
        note(_summary(group))
    beyond = [
        group
        for group in groups
        if (max_records is not None and group.records > max_records)
        or (max_seconds is not None and group.seconds > max_seconds)
    ]
    if beyond:
        click.get_current_context().exit(ExitCode.FAILED)


async def group_lags(settings: KafkaSettings, recorder: str | None = None) -> list[GroupLag]:
    """Lag of the workers' group, and of the recorders' group if it has committed offsets or is named."""
    from ..streams.kafka.lag import lag_of, offsets_of
    from ..streams.kafka.stages import default_topology

    sources = [settings.topic(name) for name in TOPICS if name in default_topology().sources]
    found = [GroupLag("worker", settings.app_id, await lag_of(settings, settings.app_id, sources))]
    group = recorder or f"{settings.app_id}-history"
    if recorder or await offsets_of(settings, group):
        topics = [settings.topic(name) for name in TOPICS]
        found.append(GroupLag("recorder", group, await lag_of(settings, group, topics)))
    return found


def _plain(group: GroupLag) -> dict[str, Any]:
    return {
        "role": group.role,
        "group": group.name,
        "lag_records": group.records,
        "lag_seconds": group.seconds,
        "partitions": [
            {
                "topic": one["topic"],
                "partition": one["partition"],
                "begin_offset": one["begin"],
                "committed_offset": one["committed"],
                "end_offset": one["end"],
                "lag_records": one["records"],
                "lag_seconds": one["seconds"],
                "deleted_records": one["deleted"],
            }
            for one in map(asdict, group.partitions)
        ],
    }


def _summary(group: GroupLag) -> str:
    never = all(one.committed is None for one in group.partitions)
    begun = "; it has never committed an offset: does a worker run?" if never and group.role == "worker" else ""
    deleted = sum(one.deleted for one in group.partitions)
    lost = f"; {deleted:,} records were deleted before it read them" if deleted else ""
    late = (
        f"{group.records:,} records behind, the oldest {age_in_words(group.seconds)}"
        if group.records
        else "nothing behind"
    )
    return f"{group.role} group {group.name}: {late}{lost}{begun}"


def _table(groups: Sequence[GroupLag]) -> Table:
    table = lined_table("Group", "Topic")
    for name in ("Partition", "Committed", "End", "Lag", "Age"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in groups:
        for one in group.partitions:
            if not (one.records or one.deleted):
                continue
            table.add_row(
                group.name,
                one.topic,
                str(one.partition),
                "–" if one.committed is None else f"{one.committed:,}",
                f"{one.end:,}",
                f"{one.records:,}",
                "?" if one.seconds is None else age_in_words(one.seconds) if one.records else "",
                style=BAD if one.deleted else "",
            )
        table.add_section()
    return table


def age_in_words(seconds: float) -> str:
    """Age as text in its two largest units."""
    whole = int(seconds)
    if whole < 1:
        return f"{seconds:.1f} s"
    for name, size, below, smaller in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // smaller} {below}"
    return f"{whole} s"

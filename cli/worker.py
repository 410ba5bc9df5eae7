"""`trustfold worker` and `topics`: run a Kafka worker, create and check its topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from ..config import EnvironmentSettings
from ..errors import ConfigError
from ..projections.rule_source import RuleSource
from ..streams.kafka.acls import RolePrincipals, acls
from ..streams.kafka.kafka_settings import KafkaSettings
from ..streams.kafka.topics import TopicDifference, create_topics, find_differences, keep_events, refuse_hidden
from ..streams.kafka.worker import run_worker
from .clients.kafka_log import reaching_kafka, run
from .options import bootstrap_option, json_option, rules_options
from .render import note, note_any, write_json

_bootstrap = bootstrap_option("default: localhost:9092")


@click.command()
@_bootstrap
@rules_options
@click.option("--publish-states", is_flag=True, help="At first publish every state that is not at its default again.")
def worker(*, bootstrap: str | None, rules_file: str | None, policies_file: str | None, publish_states: bool) -> None:
    """Run one Kafka worker until it is stopped; several workers share the partitions.

    Everything else is set by TRUSTFOLD_* variables. The log goes to standard error. Rules and policies are read again
    when their files change.
    """
    settings = KafkaSettings.from_env(bootstrap=bootstrap)
    ours = EnvironmentSettings.from_env()
    note_any(ours.switched_off)
    files = ours.rule_files(rules_file, policies_file)
    source = RuleSource(files.load(), ours.environment())
    with reaching_kafka(settings):
        code = run_worker(settings, source, files=files, publish_states=publish_states)
    click.get_current_context().exit(code)


@click.group()
def topics() -> None:
    """Create or check the Kafka topics."""


_partitions = click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Partitions of every topic; cannot change later. [env: TRUSTFOLD_PARTITIONS; default: 12]",
)


@topics.command()
@_bootstrap
@_partitions
@json_option()
def create(*, bootstrap: str | None, partitions: int | None, as_json: bool) -> None:
    """Create the missing topics with their partitions and clean-up policy; do not change existing ones.

    Exit code 2 if an existing topic differs from the requirements: it is named with the found and the required
    value.
    """
    settings = KafkaSettings.from_env(bootstrap=bootstrap, partitions=partitions)
    created: list[str] = run(settings, create_topics(settings))
    differences: list[TopicDifference] = run(settings, find_differences(settings))
    if as_json:
        write_json({"created": created, "differences": [asdict(one) for one in differences]})
    else:
        for name in created:
            click.echo(f"✓ {name}")
    note(f"{len(created)} topics created at {settings.bootstrap}" if created else "all topics existed already")
    if partitions not in {None, KafkaSettings.from_env(bootstrap=bootstrap).partitions}:
        note(f"set TRUSTFOLD_PARTITIONS={partitions} for every worker, or it will not start on these topics")
    _report(differences)


@topics.command()
@_bootstrap
@_partitions
@json_option("Print all differences as one JSON document.")
def check(*, bootstrap: str | None, partitions: int | None, as_json: bool) -> None:
    """Compare the topics with trustfold's requirements; list all differences.

    Exit code 2 if a difference must be fixed; possibly intended ones, such as a retention, are only reported.
    """
    settings = KafkaSettings.from_env(bootstrap=bootstrap, partitions=partitions)
    differences: list[TopicDifference] = run(settings, find_differences(settings))
    refuse_hidden(settings, differences)
    if as_json:
        write_json({"differences": [asdict(one) for one in differences]})
    elif not differences:
        note(f"all topics at {settings.bootstrap} are as they should be")
    _report(differences)


@topics.command()
@_bootstrap
@click.option("--days", type=click.FloatRange(min=0.01), help="Days after which records are deleted; 7 at first.")
@click.option("--for-ever", is_flag=True, help="Delete none, e.g. while old events are published.")
def keep(*, bootstrap: str | None, days: float | None, for_ever: bool) -> None:
    """Set for how long the topic of events keeps its records; other settings stay."""
    if (days is None) == (not for_ever):
        raise click.UsageError("give --days N or --for-ever")
    settings = KafkaSettings.from_env(bootstrap=bootstrap)
    name = run(settings, keep_events(settings, -1 if days is None else int(days * 86_400_000)))
    note(f"{name} at {settings.bootstrap} keeps records " + ("for ever" if days is None else f"for {days:g} days"))


@topics.command(name="acls")
@_bootstrap
@click.option(
    "--publisher", default=RolePrincipals().publisher, show_default=True, help="Principal of agents and guards."
)
@click.option(
    "--operator", default=RolePrincipals().operator, show_default=True, help="Principal that may send orders."
)
@click.option("--worker", default=RolePrincipals().worker, show_default=True, help="Workers.")
@click.option("--recorder", default=RolePrincipals().recorder, show_default=True, help="Principal of recorders.")
@click.option(
    "--dashboard", default=RolePrincipals().dashboard, show_default=True, help="Principal of `trustfold web`."
)
def acls_command(bootstrap: str | None, **who: str) -> None:
    """Print the access control lists of each role, with least privilege, as commands of kafka-acls.sh.

    A principal without a type is a user: NAME means User:NAME.
    """
    principals = {role: name if ":" in name else f"User:{name}" for role, name in who.items()}
    for line in acls(KafkaSettings.from_env(bootstrap=bootstrap), RolePrincipals(**principals)):
        click.echo(line)


def _report(differences: Sequence[TopicDifference]) -> None:
    """Print the differences on standard error; exit if one must be fixed."""
    for one in differences:
        if one.chosen:
            note(str(one))
    if wrong := [one for one in differences if not one.chosen]:
        raise ConfigError("the topics do not meet the requirements:\n" + "\n".join(f"  {one}" for one in wrong))

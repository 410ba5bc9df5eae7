"""`trustfold worker` and `topics`: the Kafka engine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import asdict
from typing import Any

import click

from ..config import Settings
from ..projections.rule_source import RuleSource
from ..schemas.errors import ConfigError
from .output import console, note, note_any, write_json
from .targets import rules_options

try:
    from ..streams.kafka.acls import Principals, acls
    from ..streams.kafka.settings import KafkaSettings
    from ..streams.kafka.topics import check_topics, create_topics, plan
    from ..streams.kafka.worker import run_worker
except ImportError as missing:
    raise ConfigError(
        f"Kafka is not installed here ({missing}); pip install 'trustfold[kafka]', or in a checkout `make install`"
    ) from missing

_bootstrap = click.option(
    "--bootstrap", metavar="HOST:PORT", help="Kafka broker. [env: TRUSTFOLD_BROKER; default: localhost:9092]"
)


@click.command()
@_bootstrap
@rules_options
def worker(*, bootstrap: str | None, rules_file: str | None, policies_file: str | None) -> None:
    """Run one Kafka worker until it is told to stop; run more of them to share the partitions.

    Everything else is set by TRUSTFOLD_* variables. The log goes to standard error. Rules and policies are read again
    when their files change.
    """
    settings = KafkaSettings.from_env(bootstrap=bootstrap)
    ours = Settings.from_env()
    note_any(ours.switched_off)
    files = ours.rule_files(rules_file, policies_file)
    source = RuleSource(files.load(), ours.environment())
    _run(check_topics(settings))
    click.get_current_context().exit(run_worker(settings, source, files=files))


@click.group()
def topics() -> None:
    """Create or check the Kafka topics."""


@topics.command()
@_bootstrap
@click.option("--dry-run", is_flag=True, help="Show what would be created.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def create(*, bootstrap: str | None, dry_run: bool, as_json: bool) -> None:
    """Create the topics that do not exist yet, with their partitions and clean-up; leave the others alone."""
    settings = KafkaSettings.from_env(bootstrap=bootstrap)
    if dry_run:
        _show_plan(settings, as_json=as_json)
        return
    created: list[str] = _run(create_topics(settings))
    if as_json:
        write_json({"created": created})
        return
    for name in created:
        click.echo(f"✓ {name}")
    note(f"{len(created)} topics created at {settings.bootstrap}" if created else "all topics were there already")


@topics.command()
@_bootstrap
def check(bootstrap: str | None) -> None:
    """Compare the topics with what trustfold needs; every difference is named."""
    settings = KafkaSettings.from_env(bootstrap=bootstrap)
    _run(check_topics(settings))
    note(f"all topics at {settings.bootstrap} are as they should be")


@topics.command(name="acls")
@_bootstrap
@click.option("--publisher", default=Principals().publisher, show_default=True, help="Agents and their guards.")
@click.option("--operator", default=Principals().operator, show_default=True, help="Who may reset and change settings.")
@click.option("--worker", "worker_", default=Principals().worker, show_default=True, help="Workers and recorders.")
def acls_command(*, bootstrap: str | None, publisher: str, operator: str, worker_: str) -> None:
    """Print the access control lists that keep publishers from giving orders, as commands of kafka-acls.sh."""
    for line in acls(KafkaSettings.from_env(bootstrap=bootstrap), Principals(publisher, operator, worker_)):
        click.echo(line)


def _show_plan(settings: KafkaSettings, *, as_json: bool) -> None:
    planned = plan(settings)
    if as_json:
        write_json([asdict(one) for one in planned])
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold")
    for name in ("Topic", "Partitions", "Clean-up"):
        table.add_column(name, overflow="fold")
    for one in planned:
        table.add_row(one.name, str(one.partitions), str(one.config.get("cleanup.policy", "delete")))
    console().print(table)


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    from .kafka_target import reaching_kafka

    with reaching_kafka():
        return asyncio.run(work)

"""`trustfold publish`: events from files to Kafka or to a running `up`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click

from ..config import EnvironmentSettings
from ..errors import ConfigError
from ..guard.backends.engine_process import answers, running_at
from ..streams.embedded.replay import open_lines
from .clients.client import TargetRights
from .clients.http import HttpTarget
from .options import bootstrap_option, json_option
from .render import ExitCode, note, write_json
from .replay import check_files, damaged
from .service import UserService

LINES_PER_REQUEST = 1000
BYTES_PER_REQUEST = 8 * 1024 * 1024  # Size of a request in bytes: half of the server's limit


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--url", metavar="URL", help="A running `up`. [env: TRUSTFOLD_URL]")
@bootstrap_option()
@click.option(
    "--topic", type=click.Choice(["events", "commands"]), default="events", show_default=True, help="Where to."
)
@click.option(
    "--now",
    is_flag=True,
    help="Stamp Kafka's records with the present, as for a live replay, not with their events' times.",
)
@json_option("Print the totals as JSON.")
def publish(
    *, files: tuple[str, ...], url: str | None, bootstrap: str | None, topic: str, now: bool, as_json: bool
) -> None:
    """Publish events (NDJSON, plain or .gz, `-` for standard input), until all are acknowledged.

    Without a place, they go to the `up` of this folder's store, or else to this user's server, which `connect` or
    `up --detach` started.

    On Kafka each record bears its event's time, so that workers fold a backlog in order. Events older than the topic
    keeps records are refused before they are lost.
    """
    check_files(files)
    settings = EnvironmentSettings.from_env()
    url, bootstrap = destination(url, bootstrap, settings)
    rights = TargetRights(settings.token, settings.operator_token)
    if not url and not bootstrap:
        if (here := running_at(settings.db)) is not None and answers(here[1]):
            url = here[1]
        elif (running := (service := UserService()).running()) is not None:
            url, rights = running[1], service.rights(settings.operator_token)
    if not url and not bootstrap:
        raise ConfigError(
            "publish to where? give --url http://127.0.0.1:8321 for a running `up`, or --bootstrap HOST:PORT for Kafka"
        )
    with damaged():
        sent, refused = (
            _to_server(HttpTarget(url, rights), files, topic)
            if url
            else _to_kafka(bootstrap, files, topic, event_times=topic == "events" and not now)
        )
    if as_json:
        write_json({"sent": sent, "refused": refused})
    note(f"{sent:,} published to {url or bootstrap}" + (f", {refused:,} refused" if refused else ""))
    if refused:
        click.get_current_context().exit(ExitCode.FAILED)


def destination(url: str | None, bootstrap: str | None, settings: EnvironmentSettings) -> tuple[str, str]:
    """Address of a server or of a broker, by the options, else by the environment; both empty if neither names one."""
    if url and bootstrap:
        raise ConfigError("--url and --bootstrap name different places; give one of them")
    if url or bootstrap:
        return url or "", bootstrap or ""
    return settings.url, "" if settings.url else settings.broker


def _lines(files: tuple[str, ...]) -> Iterator[bytes]:
    for name in files:
        with open_lines(name) as lines:
            for line in lines:
                value = line.strip()
                if value:
                    yield value


def _to_server(target: HttpTarget, files: tuple[str, ...], topic: str) -> tuple[int, int]:
    """Publish in requests of about a thousand lines; the server deduplicates repeated requests."""
    sent = refused = 0
    lines = _lines(files)
    while chunk := list(islice(lines, LINES_PER_REQUEST)):
        for body in bodies(chunk):
            answer = target.publish(topic, body)
            sent += answer.accepted
            refused += answer.dead_letters
    return sent, refused


def bodies(lines: list[bytes]) -> Iterator[bytes]:
    """Request bodies made of the lines, each within the server's limit."""
    body: list[bytes] = []
    size = 0
    for line in lines:
        if body and size + len(line) > BYTES_PER_REQUEST:
            yield b"\n".join(body)
            body, size = [], 0
        body.append(line)
        size += len(line) + 1
    yield b"\n".join(body)


def _to_kafka(bootstrap: str, files: tuple[str, ...], topic: str, *, event_times: bool) -> tuple[int, int]:
    from .clients.kafka import KafkaTarget
    from .clients.kafka_log import run

    target = KafkaTarget(bootstrap)
    from ..streams.kafka.publish import PublishProgress
    from ..streams.kafka.publish import publish as send

    progress = PublishProgress()
    try:
        run(target.kafka, send(target.kafka, _lines(files), topic=topic, event_times=event_times, progress=progress))
    except Exception:
        if progress.sent:
            note(
                f"{progress.sent:,} were published before this failure; of events that are published again, workers "
                "recognise the latest 128 of each session"
            )
        raise
    for number, reason in progress.reasons:
        note(f"{topic.removesuffix('s')} {number:,} refused: {reason}")
    return progress.sent, progress.refused

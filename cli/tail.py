"""`trustfold tail`: follows session logs of coding agents and publishes their events."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import orjson

from ..config import EnvironmentSettings
from ..errors import ConfigError, TargetUnreachable, TookTooLong, TrustfoldError
from ..schemas.decision_text import counted
from ..security.private_files import make_directory, make_file
from ..security.redaction import redact, redact_record
from .clients.client import TargetRights
from .clients.http import HttpTarget
from .options import bootstrap_option
from .publish import bodies, destination
from .render import ExitCode, note, told_waits

if TYPE_CHECKING:
    from ..ingest.growing_files import FileFollower

LOOK_S = 1.0  # Seconds between two polls of the files
LONGEST_WAIT_S = 30.0  # Longest pause in seconds between two attempts to publish while the target does not answer


class PublishOutcome(NamedTuple):
    """Result of publishing events: how many were refused, and how many were left out."""

    refused: int = 0
    left_out: int = 0


# Function that publishes events; it leaves out sessions that hooks report, which would count twice
Publish = Callable[[Sequence[bytes]], PublishOutcome]


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="PATH...")
@click.option("--url", metavar="URL", help="A running `up`. [env: TRUSTFOLD_URL; default: this user's own]")
@bootstrap_option()
@click.option("--workspace", default="", metavar="ID", help="Workspace of all events. [default: what the log says]")
@click.option("--from-start", is_flag=True, help="On the first run, also publish what the files already contain.")
@click.option("--once", is_flag=True, help="Publish what the files contain, then exit.")
def tail(
    *, names: tuple[str, ...], url: str | None, bootstrap: str | None, workspace: str, from_start: bool, once: bool
) -> None:
    """Follow session logs of coding agents, and publish their events until Ctrl-C.

    PATH is a log or a directory of logs (*.jsonl), watched for new ones: ~/.claude/projects, ~/.codex/sessions,
    ~/.gemini/tmp, ~/.qwen/projects, ~/.copilot/session-state, ~/.factory/sessions, ~/.pi/agent/sessions. Each event is
    published once, even after a restart or when a log is renamed, cut or rewritten.
    """
    from ..guard.privacy import secrets_in
    from ..ingest import ImportRun
    from ..ingest.growing_files import FileFollower

    paths = [Path(name).absolute() for name in names]
    if missing := [str(path) for path in paths if not path.exists()]:
        raise ConfigError(f"{missing[0]}: no such file or directory")
    where, publish = _target(url, bootstrap)
    places = places_file(where, paths)
    run = ImportRun(redact=redact, secrets_in=secrets_in)
    with _exclusive(places):
        logs = FileFollower(paths, places, run=run, workspace=workspace, from_start=from_start)
        try:
            sent, refused, left_out = _follow(logs, publish, where, once=once)
        except KeyboardInterrupt:
            note("stopped; the published positions are saved")
            click.get_current_context().exit(ExitCode.INTERRUPTED)
    for text in run.skipped.first:
        note(f"left out: {text}")
    if left_out:
        note(f"left out: {counted(left_out, 'event')} of sessions that hooks already report")
    note(f"{counted(sent, 'event')} published to {where}" + (f", {refused:,} refused" if refused else ""))
    if refused:
        click.get_current_context().exit(ExitCode.FAILED)


def places_file(where: str, paths: Sequence[Path]) -> Path:
    """File with the published positions of some paths for a target, below the XDG state folder."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    folder = state if state.is_absolute() else Path.home() / ".local" / "state"
    name = blake2b("\n".join([where, *sorted(map(str, paths))]).encode(errors="replace"), digest_size=8).hexdigest()
    return folder / "trustfold" / f"tail-{name}.json"


def _follow(logs: FileFollower, publish: Publish, where: str, *, once: bool) -> tuple[int, int, int]:
    """Publish new events, once or forever; count those published, refused and left out."""
    sent = refused = left_out = 0
    announced = answered = False
    while True:
        for path, events in logs.news():
            hidden = [redact_record(event) for event in events]
            with nullcontext() if answered else told_waits(where):
                outcome = publish(hidden) if once else _publish_with_retries(publish, hidden, begun=sent > 0)
            answered = True
            if outcome.left_out and not left_out and not once:
                note(f"{path}: left out, as hooks already report its session")
            sent += len(events) - sum(outcome)
            refused, left_out = refused + outcome.refused, left_out + outcome.left_out
            logs.published(path)
        if once:
            return sent, refused, left_out
        if not announced:
            announced = True
            note(f"following for {where}; Ctrl-C stops it")
        time.sleep(LOOK_S)


def _publish_with_retries(publish: Publish, events: Sequence[bytes], *, begun: bool) -> PublishOutcome:
    """Publish with retries until the target answers.

    Raises:
        TrustfoldError: the first attempt failed, so a retry would not help.
    """
    wait = LOOK_S
    while True:
        try:
            return publish(events)
        except TrustfoldError as error:
            if not begun and not isinstance(error, TargetUnreachable | TookTooLong):
                raise
            if wait == LOOK_S:
                note(f"{error}; trying again")
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT_S)


def _target(url: str | None, bootstrap: str | None) -> tuple[str, Publish]:
    """Target named by the options, else by the environment, else the server of this user."""
    settings = EnvironmentSettings.from_env()
    url, bootstrap = destination(url, bootstrap, settings)
    if bootstrap:
        return bootstrap, _to_kafka(bootstrap)
    token = settings.token
    if not url:
        from .service import UserService

        service = UserService()
        if service.running() is None:
            raise ConfigError(
                "publish to where? start this user's server with `trustfold up --detach`, or give --url or --bootstrap"
            )
        url, token = service.address, service.token
    target = HttpTarget(url, TargetRights(token))

    hooked: set[str] = set()

    def publish(events: Sequence[bytes]) -> PublishOutcome:
        hooked.update(target.hooks().sessions)
        own = [event for event in events if _session_of(event) not in hooked]
        refused = sum(target.publish("events", body).dead_letters for body in bodies(own)) if own else 0
        return PublishOutcome(refused, len(events) - len(own))

    return target.name, publish


def _session_of(event: bytes) -> str:
    """Session id of an event without the suffix after a slash, which names a subagent."""
    return str(orjson.loads(event).get("session_id")).partition("/")[0]


def _to_kafka(bootstrap: str) -> Publish:
    import asyncio

    from .clients.kafka import KafkaTarget
    from .clients.kafka_log import TIMEOUT_S, reaching_kafka, run_client

    target = KafkaTarget(bootstrap)
    from ..streams.kafka.publish import publish as send

    def publish(events: Sequence[bytes]) -> PublishOutcome:
        sending = send(target.kafka, iter(events), topic="events")
        with reaching_kafka(target.kafka):
            return PublishOutcome(run_client(asyncio.wait_for(sending, TIMEOUT_S)).refused)  # could wait forever

    return publish


@contextmanager
def _exclusive(places: Path) -> Iterator[None]:
    """Hold a lock: only one process may follow the same paths for the same target."""
    lock = places.with_suffix(".lock")
    try:
        make_directory(places.parent)
        make_file(lock)
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(
            f"{places.parent} cannot be written ({error.strerror}); set XDG_STATE_HOME to another folder"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as taken:
            raise ConfigError("another process already follows these paths for this target") from taken
        yield
    finally:
        with suppress(OSError):
            os.close(descriptor)

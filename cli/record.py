"""`trustfold record`: records all topics as Parquet for analysts."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..config import DEFAULT_HISTORY, EnvironmentSettings
from ..errors import ConfigError, TrustfoldError
from ..history.files import place_of
from .options import bootstrap_option, store_option
from .render import ExitCode, error_line, note
from .replay import check_files, damaged, reading

if TYPE_CHECKING:
    from ..history.recorder import PartitionRecorder
    from ..recording.status import RecordingStatus
    from ..recording.store_recorder import StoreRecording


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option(
    "--history",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help=f"Directory of the files; created if missing. [env: TRUSTFOLD_HISTORY; default: {DEFAULT_HISTORY}]",
)
@store_option
@bootstrap_option()
@click.option("--group", default="", help="Kafka: consumer group. [default: APP_ID-history of the deployment]")
@click.option("--rules", "rules_file", metavar="FILE", help="Rules for FILEs. [env: TRUSTFOLD_RULES]")
@click.option("--once", is_flag=True, help="Record everything present, then exit.")
@click.option("--keep-days", type=click.IntRange(1), metavar="N", help="Delete files older than this number of days.")
@click.option(
    "--flush",
    "flush_s",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time until a record is in a file.",
)
def record(  # noqa: PLR0913 - options of a command
    *,
    files: tuple[str, ...],
    history: Path | None,
    store: str | None,
    bootstrap: str | None,
    group: str,
    rules_file: str | None,
    once: bool,
    keep_days: int | None,
    flush_s: float,
) -> None:
    """Record every topic as Parquet until Ctrl-C, from the store of a local `up` or from Kafka.

    A crash neither loses nor doubles records; after a restart it continues. Results of calls are digested,
    never stored. Several recorders may share a Kafka. With a FILE of events (NDJSON, plain or .gz, `-`): record these
    and the decisions about them.

    TRUSTFOLD_WEB_PORT serves /healthz, /readyz and /metrics, except with --once or a FILE.
    """
    settings = EnvironmentSettings.from_env()
    given = [name for name, value in (("--store", store), ("--bootstrap", bootstrap), ("FILE", files)) if value]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} name different places; give one of them")
    if files:
        check_files(files)
    broker = bootstrap or ("" if store else settings.broker)
    root = history or settings.history
    if history is None and not broker:
        from ..recording.files import files_source
        from ..recording.store_recorder import source_of_store

        root = place_of(root, files_source(files) if files else source_of_store(Path(store or settings.db)))
    recorder = open_recorder(root, flush_s)
    interrupted = False
    try:
        if files:
            from ..recording.files import record_files

            with damaged(), reading(files) as progress:
                record_files(recorder, files, settings.rules(rules_file), progress.advance)
        elif broker:
            interrupted = _from_kafka(recorder, broker, group, keep_days, once=once)
        else:
            interrupted = _from_store(recorder, Path(store or settings.db), keep_days, once=once)
        note(f"{recorder.recorded:,} records written to {root}")
    finally:
        recorder.close()
    if interrupted:
        click.get_current_context().exit(ExitCode.INTERRUPTED)


def open_recorder(root: Path, flush_s: float = 30.0) -> PartitionRecorder:
    """Open a recorder that writes into a directory."""
    from ..history.recorder import PartitionRecorder

    return PartitionRecorder(root, flush_s=flush_s)


@contextmanager
def recording_beside(store: Path, root: Path) -> Iterator[RecordingStatus]:
    """Record a store in a thread of this process until the block ends; then write all remaining records.

    Yields:
        Status of the recording.

    Raises:
        ConfigError: the directory holds another store's history, or another process records it.
    """
    from ..recording.store_recorder import StoreRecording

    recorder = open_recorder(root)
    stopped = threading.Event()
    try:
        recording = StoreRecording(recorder, store, say=note)
        thread = threading.Thread(target=_run, args=(recording, stopped), name="trustfold-recorder")
        thread.start()
        try:
            yield recording.status
        finally:
            stopped.set()
            thread.join()
            recording.close()
    finally:
        recorder.close()


def _run(recording: StoreRecording, stopped: threading.Event) -> None:
    try:
        recording.run(stopped)
    except TrustfoldError as error:
        recording.status.failure = str(error)
        error_line(f"recording has stopped: {error}")


def _from_store(recorder: PartitionRecorder, path: Path, keep_days: int | None, *, once: bool) -> bool:
    """Record until a signal; return whether that was an interrupt."""
    from ..recording.probes import probed
    from ..recording.store_recorder import StoreRecording
    from ..streams.kafka.kafka_settings import KafkaSettings

    stopped = threading.Event()
    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        # A signal may come while this thread holds the event's lock, in `wait`: setting it here would never return.
        threading.Thread(target=stopped.set, daemon=True).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    recording = StoreRecording(recorder, path, keep_days=keep_days, say=note)
    try:
        with probed(recording.status, KafkaSettings.from_env(), once=once):
            note(f"recording {path} into {recorder.root}" + ("" if once else "; Ctrl-C stops it"))
            recording.run(stopped, once=once)
    finally:
        recording.close()
    return signal.SIGINT in received


def _from_kafka(recorder: PartitionRecorder, broker: str, group: str, keep_days: int | None, *, once: bool) -> bool:
    """As `_from_store`."""
    from .clients.kafka import KafkaTarget
    from .clients.kafka_log import reaching_kafka, run_client

    settings = KafkaTarget(broker).kafka
    received: list[int] = []
    from ..recording.kafka_recorder import KafkaRecording
    from ..recording.probes import probed

    async def work() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            received.append(number)
            stopped.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        recording = KafkaRecording(recorder, settings, group=group, keep_days=keep_days, say=note)
        with probed(recording.status, settings, once=once):
            note(f"recording {settings.bootstrap} into {recorder.root}" + ("" if once else "; Ctrl-C stops it"))
            await recording.run(stopped, once=once)

    with reaching_kafka(settings):
        run_client(work())
    return signal.SIGINT in received

"""A real Apache Kafka on this machine, without containers: Java 17 and Maven are enough.

    local_kafka.py prepare                          fetch the jars, once, and what makes starts quick
    local_kafka.py run [--port 9092] [--data DIR]   a broker in the foreground, until Ctrl-C

Exit codes: 0 stopped as asked, 1 the broker ended by itself, 2 something on this machine is missing (the
message says what). From Python: `with LocalKafka() as kafka: …kafka.bootstrap…`.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from local_kafka_jars import KafkaUnavailable, prepare
from local_kafka_node import LocalKafka, keep_start

__all__ = ["KafkaUnavailable", "LocalKafka", "main", "prepare"]

PORT = 9092  # where Kafka's clients look first
DATA = Path(".kafka")  # in the current folder, so that what was published is there tomorrow


class _StopAsked(Exception):
    """Somebody asked us to stop."""


def _asked(_signal: int, _frame: FrameType | None) -> None:
    raise _StopAsked


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _prepare() -> int:
    ready = prepare(_say)
    with suppress(OSError):  # of a folder that is not ours to write
        keep_start(ready)
    print(f"Apache Kafka {ready.version} is ready in {ready.libs.parent}")
    return 0


def _run(port: int, data: Path) -> int:
    kafka = LocalKafka(port=port, data=data, say=_say)
    try:
        _say("starting Kafka")
        kafka.start()
        print(f"{kafka.bootstrap}", flush=True)
        _say(
            f"Apache Kafka {kafka.version} answers on {kafka.bootstrap} after {kafka.seconds_to_start:.1f} s;"
            f" data and broker.log in {kafka.data}; Ctrl-C stops it"
        )
        code = kafka.wait()
    except _StopAsked:
        # A second Ctrl-C does not cut the stop short: it takes a second or two, and at most twenty.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        _say("stopping Kafka")
        kafka.close()
        return 0
    _say(f"Kafka ended by itself with code {code}:\n{kafka.complaints()}")
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; gives the exit code."""
    parser = argparse.ArgumentParser(prog="local_kafka.py", description="A real Apache Kafka without containers.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare", help="fetch Kafka's jars and what makes starts quick, once")
    run = commands.add_parser("run", help="run a broker in the foreground until Ctrl-C")
    run.add_argument("--port", type=int, default=PORT, help=f"port on 127.0.0.1 (default {PORT})")
    run.add_argument("--data", type=Path, default=DATA, help=f"folder that keeps its data (default {DATA})")
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _asked)
    try:
        return _prepare() if options.command == "prepare" else _run(options.port, options.data)
    except _StopAsked:
        return 0
    except KafkaUnavailable as error:
        _say(f"local_kafka.py: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())

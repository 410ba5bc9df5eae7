"""The entry: quick, documented, with exit codes that mean something and no tracebacks."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
import trustfold as package
from click.testing import CliRunner
from command_line import COMMAND, completions, environment, started, trustfold
from recorded import record
from trustfold.cli import render
from trustfold.cli.clients.kafka_log import KafkaSettings, run
from trustfold.cli.demo import events
from trustfold.cli.main import COMMANDS, RELIABILITY_COMMANDS, main
from trustfold.cli.render import ExitCode
from trustfold.history import queries
from trustfold.streams.embedded.engine import EmbeddedEngine
from two_days import two_days
from warm_process import WarmProcess

HEAVY = {"aiokafka", "asyncio", "duckdb", "faust", "http", "rich", "sqlite3", "starlette", "uvicorn"}


def commands(command: click.Command = main, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that call it."""
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found += commands(child, (*path, name))
    return found


@pytest.mark.parametrize(
    ("path", "command"), commands(), ids=lambda value: "-".join(value) if type(value) is tuple else ""
)
def test_every_command_explains_itself(path: tuple[str, ...], command: click.Command) -> None:
    """Each command has help, and so has each of its options."""
    assert command.help, path
    assert "\\" not in command.help, path
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, (path, parameter.name)


def test_help_lists_every_command_and_the_exit_codes(tmp_path: Path) -> None:
    """`trustfold --help` names all commands, each with its line, and what the exit codes mean."""
    done = trustfold("--help", cwd=tmp_path)
    shown = " ".join(done.stdout.decode().split())
    assert done.returncode == 0
    for name, (_, line) in COMMANDS.items():
        assert f" {name} " in shown
        assert line in shown
    for code in ExitCode:
        assert f" {code:d} " in shown
    assert done.stderr == b""


def test_help_is_ascii() -> None:
    """A terminal without UTF-8 gets it nevertheless from click."""
    helps = {path: command.get_help(click.Context(command)) for path, command in commands()}
    assert [path for path, text in helps.items() if not text.isascii()] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    """In the first cell of a row of docs/commands.md."""
    rows = (Path(__file__).parents[2] / "docs" / "commands.md").read_text().splitlines()
    cells = [row.split(" | ")[0] for row in rows if row.startswith("| `trustfold ")]
    assert any(re.search(rf"`(?:trustfold )?{name}\b", cell) for cell in cells), f"docs/commands.md: no row of {name}"


def test_help_loads_nothing_heavy() -> None:
    """Asking for help imports no engine, no server, not even the library that draws tables."""
    code = """
import sys, trustfold.cli.main
try:
    trustfold.cli.main.main(["--help"])
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert not loaded & HEAVY
    assert "trustfold.streams" not in done.stderr.split()


def test_version(tmp_path: Path) -> None:
    """`trustfold --version` is one line."""
    assert trustfold("--version", cwd=tmp_path).stdout == f"trustfold {package.__version__}\n".encode()


def test_the_older_spelling_works(tmp_path: Path) -> None:
    """`trustfold reliability status` is `trustfold status`, and so for the others that exist."""
    context = click.Context(main)
    group = main.get_command(context, "reliability")
    assert isinstance(group, click.Group)
    for name in RELIABILITY_COMMANDS:
        assert group.get_command(context, name) is main.get_command(context, name)
    assert trustfold("reliability", "status", cwd=tmp_path).stderr == trustfold("status", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    "words",
    [["nonsense"], ["status", "--nonsense"], ["replay"], ["up", "--port", "x"], ["status", "--store", "none.sqlite"]],
)
def test_wrong_usage_is_exit_code_2(words: list[str], tmp_path: Path) -> None:
    """What cannot be understood is told on standard error and changes nothing."""
    done = trustfold(*words, cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert done.stdout == b""
    assert done.stderr
    assert b"Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_principal_without_a_type_is_a_user_and_a_distinguished_name_one_word(tmp_path: Path) -> None:
    """Kafka refuses a principal without a type; the prefix `-` would give rights on groups of others."""
    words = ("topics", "acls", "--publisher", "alice", "--operator", "User:CN=ops, O=shop")
    lines = trustfold(*words, cwd=tmp_path).stdout.decode().splitlines()
    principals = {shlex.split(line)[5] for line in lines}
    assert {"User:alice", "User:CN=ops, O=shop"} < principals
    assert [line.rpartition(" ")[2] for line in lines if "prefixed" in line] == ["alice-"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["statsu"], "did you mean 'status'?"),
        (["breaker", "opn"], "did you mean 'open'?"),
        (["topics", "zzz"], "; choose from acls, check, create"),
        (["worker", "--bootstrap", "x:y"], "broker address 'x:y': the port must be a number from 1 to 65535"),
        (["status", "--bootstrap", "x:y"], "broker address 'x:y': the port must be a number from 1 to 65535"),
        (["up", "--port", "0", "--store", "."], ".: is a directory; name a file in it"),
        (["status", "--store", "."], ".: is a directory; name the store in it"),
        (["breaker", "close", " "], "the name is empty; give a tool or circuit"),
    ],
)
def test_what_is_mistyped_is_told_with_what_is_meant(words: list[str], said: str, tmp_path: Path) -> None:
    """One line says what is wrong and what would be right; no traceback does."""
    done = trustfold(*words, cwd=tmp_path)
    assert done.returncode != ExitCode.OK
    assert said in done.stderr.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["status"], ["reset", "bash"], ["dead-letters", "list"], ["publish", "-"]])
def test_nobody_there_is_exit_code_3(words: list[str], tmp_path: Path) -> None:
    """A server that does not answer is one line that says what to check."""
    done = trustfold(*words, "--url", "http://127.0.0.1:1", cwd=tmp_path, stdin=b"{}")
    assert done.returncode == ExitCode.UNREACHABLE
    assert done.stderr.startswith(b"trustfold: nothing answers at http://127.0.0.1:1 (")
    assert done.stderr.endswith(b"); is `trustfold up` running there?\n")
    assert done.stderr.count(b"\n") == 1


def test_settings_that_make_no_sense_are_named(tmp_path: Path) -> None:
    """A variable that does not parse is an error of the configuration, with its name."""
    done = trustfold("status", cwd=tmp_path, env={"TRUSTFOLD_PORT": "eighty"})
    assert done.returncode == ExitCode.USAGE
    assert done.stderr == b"trustfold: TRUSTFOLD_PORT is 'eighty', which is not a whole number\n"


def test_two_places_at_once_are_refused(tmp_path: Path) -> None:
    """--url and --store name different places; neither wins silently."""
    done = trustfold("status", "--url", "x", "--store", "y", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert b"--store and --url name different places" in done.stderr


@pytest.mark.parametrize("inherited", [signal.SIG_DFL, signal.SIG_IGN], ids=["in front", "behind a script"])
def test_an_interrupt_is_exit_code_130(tmp_path: Path, inherited: signal.Handlers) -> None:
    """Ctrl-C ends a command quietly, also one that a script runs in the background, where SIGINT begins ignored."""
    before = signal.signal(signal.SIGINT, inherited)
    try:
        process = subprocess.Popen(
            [*COMMAND, "replay", "-", "--json"],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write((Path(__file__).parents[2] / "cli" / "demo.ndjson").read_bytes())
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.stdin.close()  # who ignores the signal ends with 0
        assert process.wait(60) == ExitCode.INTERRUPTED
        assert process.stderr.read() == b"trustfold: interrupted\n"


def test_an_interrupt_is_not_lost_in_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extension module that drops the exception raised in its initialisation does not keep a command running."""

    def imported(_name: str, _package: str) -> SimpleNamespace:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return SimpleNamespace(replay=click.Command("replay", callback=lambda: None))

    monkeypatch.setattr("trustfold.cli.main.import_module", imported)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = CliRunner().invoke(main, ["replay"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.exit_code, done.stderr) == (ExitCode.INTERRUPTED, "trustfold: interrupted\n")


@pytest.mark.parametrize("source", ["--store", "--bootstrap"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.OK)])
def test_a_stopped_recorder_says_what_it_wrote(
    tmp_path: Path, source: str, number: signal.Signals, code: ExitCode
) -> None:
    """Whatever it records, and whichever signal stops it; a broker that does not answer keeps it from nothing."""
    with closing(EmbeddedEngine.open(tmp_path / "s.sqlite")), socket.create_server(("127.0.0.1", 0)) as silent:
        place = str(tmp_path / "s.sqlite") if source == "--store" else f"127.0.0.1:{silent.getsockname()[1]}"
        settings = {"TRUSTFOLD_STOP_TIMEOUT": "0.1"}
        words = ("record", source, place, "--history", "h")
        with started(*words, cwd=tmp_path, env=settings, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            assert b"Ctrl-C stops it" in process.stderr.readline()
            process.send_signal(number)
            assert process.wait(60) == code
            assert re.search(rb"\d records written to h\n\Z", process.stderr.read())


LONG = "a" * 300


@pytest.mark.parametrize(
    "words",
    [
        ("status", "--store", LONG),
        ("up", "--port", "0", "--store", LONG),
        ("record", "--history", LONG),
        ("replay", LONG),
    ],
    ids=lambda words: words[0],
)
def test_a_path_that_cannot_be_looked_at_is_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    """As a folder of somebody else, where even asking whether a file exists is refused."""
    done = trustfold(*words, cwd=tmp_path)
    (line,) = done.stderr.decode().splitlines()
    if sys.version_info < (3, 14):  # since then such a path counts as one that does not exist
        assert done.returncode == ExitCode.FAILED
        assert re.fullmatch(r"trustfold: \S*a{300}: File name too long; check the path and its rights, .*", line)
    assert done.returncode in {ExitCode.FAILED, ExitCode.USAGE}
    assert re.match(r"trustfold: .*a{300}", line)


def test_an_interrupt_of_a_query_is_exit_code_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For Ctrl-C during a query DuckDB raises an error of its own, which shows no traceback either."""
    record(tmp_path / "h", [*two_days()][:20], live=True)

    def cancelled(*_given: object) -> None:
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr(queries, "_begun", cancelled)
    done = CliRunner().invoke(main, ["sql", "--history", str(tmp_path / "h"), "SELECT 1"])
    assert (done.exit_code, done.stderr) == (ExitCode.INTERRUPTED, "trustfold: interrupted\n")


def in_terminal(*words: str, cwd: Path, **env: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    settings = {name: value for name, value in environment(env).items() if name != "NO_COLOR" or "NO_COLOR" in env}
    with WarmProcess([*COMMAND, *words], cwd=cwd, env={**settings, "TERM": "xterm"}, stdout=theirs, stderr=theirs):
        os.close(theirs)
        written = b""
        while chunk := _read(ours):
            written += chunk
    os.close(ours)
    return written.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # Linux says so when the other side is closed
        return b""


def test_colour_only_where_it_is_wanted(tmp_path: Path) -> None:
    """A terminal gets colour, unless NO_COLOR is set; a pipe gets none."""
    red = "\x1b[1;31m"
    assert red in in_terminal("demo", cwd=tmp_path)
    assert "\x1b[1;31m" not in in_terminal("demo", cwd=tmp_path, NO_COLOR="1")
    assert b"\x1b" not in trustfold("demo", cwd=tmp_path).stdout


def test_a_command_says_that_it_waits_for_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that accepts a connection and is mute would else be silence for half a minute."""
    said = threading.Event()
    notes: list[str] = []
    monkeypatch.setattr(render, "TELL_S", 0.0)
    monkeypatch.setattr(render, "note", lambda text: (notes.append(text), said.set()))
    assert run(KafkaSettings.from_env(bootstrap="kafka.example:9092"), asyncio.to_thread(said.wait, 60))
    assert notes == ["still waiting for kafka.example:9092"]


def test_live_keys_are_completed(tmp_path: Path) -> None:
    """The shell's completion offers the keys that are not trusted; without a store it offers none, and no error."""
    assert completions("reset ba", "bash", tmp_path) == [""]
    with EmbeddedEngine.open(tmp_path / ".trustfold/trustfold.sqlite") as engine:
        engine.ingest(events())
    assert completions("reset ba", "bash", tmp_path) == ["plain,bash|danger=root"]

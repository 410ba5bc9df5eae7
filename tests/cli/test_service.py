"""This user's server: started without harm to what is there, named by `status`, opened, and taken out again."""

from __future__ import annotations

import json
import os
import pty
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from command_line import Up, environment, trustfold, up
from recorded import small_event
from trustfold import __version__
from trustfold.cli.clients.client import ServerIdentity
from trustfold.cli.origin import ProcessInfo, _parents_in, agent_behind, order_of_an_agent
from trustfold.cli.service import UserService
from trustfold.cli.uninstall import _program_removal, uninstall
from trustfold.config import INSTALLATION
from trustfold.errors import ConfigError

by_a_person = pytest.mark.skipif(bool(order_of_an_agent()), reason="an agent runs these tests, and may give no orders")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a user whose service is stopped in the end."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    env = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "XDG_RUNTIME_DIR": "", "CODEX_HOME": ""}
    yield env
    UserService(env).stop()


@pytest.fixture
def taken() -> Iterator[str]:
    """A port at which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


def at_a_terminal(words: str, cwd: Path, env: dict[str, str]) -> tuple[int, str]:
    """Run a shell line whose streams are a terminal; returns its exit code and what it printed."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        ["bash", "-c", words], cwd=cwd, env=environment(env), stdin=its, stdout=its, stderr=its, start_new_session=True
    ) as process:
        os.close(its)
        said = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            said += part
        code = process.wait(100)
    os.close(ours)
    return code, said.decode().replace("\r\n", "\n")


def command(*words: str) -> str:
    """A command of ours for a shell line."""
    return shlex.join([sys.executable, "-m", "trustfold", *words])


def test_a_taken_port_leaves_everything_as_it_was(home: dict[str, str], tmp_path: Path, taken: str) -> None:
    """`up` that cannot listen makes no store, from which `status` would answer; `--detach` records no address."""
    failed = trustfold("up", "--port", taken, cwd=tmp_path, env=home)
    assert failed.returncode == 2
    assert not (tmp_path / ".trustfold").exists()
    assert b"no such store" in trustfold("status", cwd=tmp_path, env=home).stderr

    failed = trustfold("up", "--detach", "--port", taken, cwd=tmp_path, env=home)
    assert failed.returncode == 2
    assert f"another program listens at 127.0.0.1:{taken}; choose another port" in failed.stderr.decode()
    assert UserService(home).address == ""
    assert not UserService(home).store.exists()

    assert trustfold("connect", "codex", cwd=tmp_path, env=home).returncode == 0
    found = UserService(home).running()
    assert found is not None
    assert found[1] == f"http://{UserService(home).address}"
    port = found[1].rpartition(":")[2]
    beside = trustfold("up", "--port", port, cwd=tmp_path, env=home)
    assert (beside.returncode, f"this user's server runs at {found[1]}" in beside.stderr.decode()) == (2, True)
    for words in (("story", "last"), ("status", "--session", "last")):
        assert b"no session of a connected agent yet" in trustfold(*words, cwd=tmp_path, env=home).stderr
    published = trustfold("publish", "-", cwd=tmp_path, env=home, stdin=small_event(1))
    assert published.stderr.decode() == f"1 published to {found[1]}\n"
    assert (
        f"server: this user's, {found[1]} answers"
        in trustfold("doctor", cwd=tmp_path, env=home | {"COLUMNS": "200"}).stdout.decode()
    )
    moved = trustfold("up", "--detach", "--port", taken, cwd=tmp_path, env=home)
    assert f"to move it: trustfold up --stop; trustfold up --detach --port {taken}" in moved.stderr.decode()


def test_status_says_what_it_read(home: dict[str, str], tmp_path: Path) -> None:
    """Which store and server, since when, and for each agent whether it is enforced and when its last hook came."""
    shown = trustfold("connect", "codex", "--shadow", cwd=tmp_path, env=home).stderr.decode()
    assert "in shadow mode: it observes and says nothing" in shown
    assert "to enforce: trustfold connect codex" in shown
    trustfold("connect", "cursor", cwd=tmp_path, env=home)
    service = UserService(home)
    hook = json.loads((tmp_path / ".codex" / "hooks.json").read_text())["hooks"]["SessionStart"][0]["hooks"][0]
    payload = {"session_id": "s", "cwd": str(tmp_path), "hook_event_name": "SessionStart"}
    subprocess.run(["sh", "-c", hook["command"]], input=json.dumps(payload).encode(), check=True)

    text = trustfold("status", cwd=tmp_path, env=home | {"COLUMNS": "300"}).stdout.decode()
    assert f"Read from {service.store}, kept by the server http://{service.address}, up since 20" in text
    assert "codex: shadow, it only observes; last hook " in text
    assert "cursor: enforcing; no hook since the server started" in text
    document = json.loads(trustfold("status", "--json", cwd=tmp_path, env=home).stdout)
    assert document["server"].items() >= {"url": f"http://{service.address}", "answers": True}.items()
    assert document["server"]["version"] == __version__
    assert [(one["agent"], one["shadow"], one["last_time"] is None) for one in document["agents"]] == [
        ("codex", True, False),
        ("cursor", False, True),
    ]
    trustfold("connect", "codex", cwd=tmp_path, env=home)
    text = trustfold("status", cwd=tmp_path, env=home | {"COLUMNS": "300"}).stdout.decode()
    assert "codex: enforcing; last hook " in text
    service.stop()
    text = trustfold("status", cwd=tmp_path, env=home | {"COLUMNS": "300"}).stdout.decode()
    assert f"Read from {service.store}; no server runs, and the hooks of codex, cursor get no answer" in text
    for agent in ("codex", "cursor"):
        trustfold("connect", agent, "--remove", cwd=tmp_path, env=home)
    text = trustfold("status", cwd=tmp_path, env=home | {"COLUMNS": "300"}).stdout.decode()
    assert f"Read from {service.store}\n" in text


@pytest.mark.parametrize(
    ("version", "installation", "outdated"),
    [
        (__version__, str(INSTALLATION), False),
        ("0.0.9", str(INSTALLATION), True),
        ("0.0.9", "/nowhere/trustfold", True),
        ("0.0.9", "/usr", False),
        ("", "", False),
    ],
)
def test_what_an_upgrade_left_running_is_replaced(
    version: str, installation: str, outdated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of this installation before its upgrade, or of one that is gone, is started anew; others go on."""
    monkeypatch.setattr(UserService, "about", lambda _: ServerIdentity(version, installation, "", ""))
    assert UserService({})._is_outdated() is outdated


def test_connect_names_the_server_of_another_installation(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who connects with other code than the server runs reads both, and what to do."""
    from trustfold.cli.connect import _other_server

    monkeypatch.setattr(UserService, "about", lambda _: ServerIdentity("0.0.9", "/opt/old/trustfold", "", ""))
    assert _other_server(UserService(home)) == (
        f"the server that runs is trustfold 0.0.9 of /opt/old/trustfold, and this is {__version__} of {INSTALLATION}; "
        "to run this one: trustfold up --stop; trustfold up --detach"
    )
    monkeypatch.setattr(UserService, "about", lambda _: ServerIdentity(__version__, str(INSTALLATION), "", ""))
    assert _other_server(UserService(home)) == ""


def test_a_read_only_file_is_asked_about(home: dict[str, str], tmp_path: Path) -> None:
    """What its owner made read-only is changed only on demand, and keeps its mode."""
    file = tmp_path / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text("{}\n")
    file.chmod(0o444)
    refused = trustfold("connect", "claude", cwd=tmp_path, env=home)
    assert refused.returncode == 2
    assert b"is read-only, and nothing was changed; add --yes" in refused.stderr
    assert file.read_text() == "{}\n"
    assert trustfold("connect", "claude", "--yes", cwd=tmp_path, env=home).returncode == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o444
    assert trustfold("connect", "claude", cwd=tmp_path, env=home).returncode == 0, "nothing is to be changed"


def test_open_signs_in_once(home: dict[str, str], tmp_path: Path) -> None:
    """The address that the browser gets signs in, and only once; without a browser it is printed."""
    assert trustfold("open", cwd=tmp_path, env=home).returncode == 2
    trustfold("up", "--detach", cwd=tmp_path, env=home)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {shlex.quote(str(tmp_path / "url"))}\n')
    browser.chmod(0o755)
    done = trustfold("open", cwd=tmp_path, env=home | {"BROWSER": str(browser)})
    assert (done.returncode, b"opened http://127.0.0.1:" in done.stderr) == (0, True)
    url = urlsplit((tmp_path / "url").read_text().strip())
    server = Up(None, f"http://{url.netloc}")  # type: ignore[arg-type]  # it runs in the background
    connection = server.connect()
    connection.request("GET", f"{url.path}?{url.query}")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert "operator." not in cookie, "nobody sits at a terminal"
    assert server.request("GET", "/", headers={"Cookie": cookie})[0] == 200
    assert server.request("GET", f"{url.path}?{url.query}")[0] == 403, "it was used"
    plain = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    printed = trustfold("open", cwd=tmp_path, env=home | plain)
    assert printed.stdout.startswith(b"http://127.0.0.1:")


def test_open_of_a_server_without_tokens(tmp_path: Path) -> None:
    """Where nobody has to sign in the address is the dashboard's own."""
    with up(cwd=tmp_path) as server:
        printed = trustfold("open", cwd=tmp_path, env={"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""})
        assert printed.stdout.decode() == f"{server.url}/\n"


@pytest.mark.parametrize(
    ("prefix", "removal"),
    [
        ("/home/u/.local/share/uv/tools/trustfold", "uv tool uninstall trustfold"),
        ("/home/u/.local/share/pipx/venvs/trustfold", "pipx uninstall trustfold"),
        ("/home/u/uv/.venv", "pip uninstall trustfold"),
    ],
)
def test_the_program_is_removed_by_what_installed_it(
    prefix: str, removal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known by the folder of its Python."""
    monkeypatch.setattr(sys, "prefix", prefix)
    assert _program_removal() == removal


def test_uninstall_takes_out_what_was_installed(home: dict[str, str], tmp_path: Path) -> None:
    """It says what it will do, asks, and leaves files as they were; a dry run and a refusal change nothing."""
    before = '{"model": "x"}\n'
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(before)
    for words in (("claude",), ("codex",), ("gemini", "--project", "project")):
        assert trustfold("connect", *words, cwd=tmp_path, env=home).returncode == 0
    planned = trustfold("uninstall", "--dry-run", cwd=tmp_path, env=home).stdout.decode()
    for part in (".claude/settings.json", ".codex/hooks.json", "project/.gemini/settings.json", "stop the server at"):
        assert part in planned
    assert f"delete {tmp_path / 'data' / 'trustfold'}" in planned
    asked = trustfold("uninstall", cwd=tmp_path, env=home)
    assert (asked.returncode, b"add --yes" in asked.stderr) == (2, True)
    assert UserService(home).running() is not None

    kept = trustfold("uninstall", "--keep-data", "--yes", cwd=tmp_path, env=home)
    assert kept.returncode == 0, kept.stderr
    assert (tmp_path / ".claude" / "settings.json").read_text() == before
    assert not (tmp_path / ".codex").exists()
    assert not (tmp_path / "project" / ".gemini").exists()
    assert UserService(home).running() is None
    assert UserService(home).store.exists()
    assert trustfold("uninstall", "--yes", cwd=tmp_path, env=home).returncode == 0
    assert not (tmp_path / "data" / "trustfold").exists()
    assert b"nothing of trustfold" in trustfold("uninstall", "--yes", cwd=tmp_path, env=home).stderr


def test_a_server_without_its_libraries_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named first."""
    monkeypatch.setattr("trustfold.cli.service.find_spec", lambda name: None if name == "starlette" else name)
    with pytest.raises(ConfigError, match="add the extra web"):
        UserService({"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}).start()
    assert not (tmp_path / "data").exists()


def test_uninstall_beside_a_server_that_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that the server removes meanwhile are no fault."""
    home = tmp_path / "data" / "trustfold"
    home.mkdir(parents=True)
    left = [home / "trustfold.sqlite.sock", home / "hooks.late"]
    for file in left:
        file.touch()
    scandir = os.scandir

    def read(folder: Any) -> Any:
        found = list(scandir(folder))
        if left and any(one.name == left[-1].name for one in found):
            left.pop().unlink()
        return nullcontext(iter(found))

    monkeypatch.setattr(os, "scandir", read)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    done = CliRunner().invoke(uninstall, ["--yes"])
    assert (done.exit_code, home.exists()) == (0, False), done.output


# --- who gives an order ----------------------------------------------------------------------------------------------


@by_a_person
def test_a_person_gives_orders_and_an_agent_does_not(home: dict[str, str], tmp_path: Path) -> None:
    """At a person's terminal no token is needed; an agent is refused there, too, and cannot stop the server."""
    trustfold("up", "--detach", cwd=tmp_path, env=home)
    code, said = at_a_terminal(command("remove", "Bash", "--yes"), tmp_path, home)
    assert (code, "Bash" in said) == (0, True), said
    restoring = command("restore", "Bash")
    cleared = "env -i HOME=$HOME XDG_DATA_HOME=$XDG_DATA_HOME"
    for line in (
        f"exec -a claude bash -c {shlex.quote(command('restore', 'Bash') + '; exit $?')}",
        f"CLAUDECODE=1 {command('restore', 'Bash')}",
        f"export GEMINI_CLI=1; bash -c {shlex.quote(f'{cleared} {restoring}; exit $?')}",
        f"QWEN_CODE=1 {command('up', '--stop')}",
        f"OPENCODE=1 {command('uninstall', '--yes')}",
    ):
        code, said = at_a_terminal(line, tmp_path, home)
        assert code == 1, said
        assert "an agent may not lift what holds it back; give this order in a terminal of your own" in said
    service = UserService(home)
    assert service.running() is not None
    service.stop()
    code, said = at_a_terminal(f"CLAUDECODE=1 {command('restore', 'Bash')}", tmp_path, home)
    assert (code, "may not lift" in said) == (1, True), "nor into the store while no server runs"
    given = {"TRUSTFOLD_OPERATOR_TOKEN": service.operator_token}
    code, said = at_a_terminal(f"CLAUDECODE=1 {command('restore', 'Bash')}", tmp_path, home | given)
    assert code == 1, said


def test_the_operators_token_works_where_it_is_named(home: dict[str, str], tmp_path: Path) -> None:
    """Without a terminal the refusal names the variable and the file that has it; with it, the order is taken."""
    trustfold("up", "--detach", cwd=tmp_path, env=home)
    service = UserService(home)
    refused = trustfold("remove", "Bash", "--yes", cwd=tmp_path, env=home)
    assert refused.returncode == 1
    assert f"TRUSTFOLD_OPERATOR_TOKEN, as {service.secrets_file} has it" in refused.stderr.decode()
    given = {"TRUSTFOLD_OPERATOR_TOKEN": service.operator_token}
    for words in ((), ("--url", f"http://{service.address}"), ("--store", str(service.store))):
        done = trustfold("remove", "Bash", "--yes", *words, cwd=tmp_path, env=home | given)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "agent"),
    [
        (("/opt/a/claude",), "Claude Code"),
        (("codex", "exec"), "Codex"),
        (("node", "--max-old-space-size=1", "/n/node_modules/@google/gemini-cli/bundle/gemini.js", "-p"), "Gemini CLI"),
        (("/usr/bin/node", "/usr/local/bin/qwen", "--yolo"), "Qwen Code"),
        (("/n/@github/copilot-linux-x64/copilot", "-p", "x"), "Copilot CLI"),
        (("opencode", "run"), "OpenCode"),
        (("bash",), ""),
        (("vim", "/home/ada/claude"), ""),
        (("node", "/srv/claude/server.js"), ""),
        ((), ""),
    ],
)
def test_agents_are_known_by_their_programs(words: tuple[str, ...], agent: str) -> None:
    """The name of a program, or the package that an interpreter runs; never a path that only holds the word."""
    found = agent_behind([ProcessInfo(7, ("bash",)), ProcessInfo(6, words)])
    assert found == (f"this command comes out of {agent} (process 6)" if agent else "")


def test_parents_in_a_table_of_processes() -> None:
    """Where there is no /proc, `ps` says who started whom."""
    rows = (
        "  1     0 /sbin/launchd",
        " 40     1 claude --resume",
        " 52    40 /bin/zsh -c ls",
        " 60    52 python",
        "9 1 codex",
    )
    table = "\n".join(rows)
    assert [(one.number, one.words[0]) for one in _parents_in(60, table)] == [
        (52, "/bin/zsh"),
        (40, "claude"),
        (1, "/sbin/launchd"),
    ]
    assert agent_behind(_parents_in(60, table)) == "this command comes out of Claude Code (process 40)"
    assert agent_behind(_parents_in(9, table)) == ""

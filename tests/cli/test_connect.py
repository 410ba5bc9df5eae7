"""`trustfold connect`: the agent's own configuration, changed and put back to the byte; the server behind it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from command_line import trustfold
from hypothesis import given, settings
from hypothesis import strategies as st
from trustfold.cli.connect import BACKUP, ConnectionFile
from trustfold.cli.doctor_machine import _hooks
from trustfold.cli.service import UserService, unit_text
from trustfold.errors import ConfigError
from trustfold.integrations.agent_config import (
    AGENTS,
    CLIENT,
    HookLink,
    connected,
    disconnected,
    place_of,
    switched_off,
)
from trustfold.integrations.hook_client import LATE, MAX_BYTES
from trustfold.integrations.json_text import parse
from trustfold.rules.rules import BehaviourRules

LINK = HookLink(Path("/home/ada/.local/share/trustfold"), "/usr/bin/python3")
WITH_SETTINGS = sorted(set(AGENTS) - {"opencode", "copilot"})
"""Those that read a file which others write into, too."""

handlers = st.fixed_dictionaries(
    {"type": st.just("command"), "command": st.sampled_from(["true", "lint", "trustfold"])}
)
groups = st.fixed_dictionaries({"hooks": st.lists(handlers, max_size=2)}, optional={"matcher": st.just("Bash")})
hooks = st.dictionaries(st.sampled_from(["PreToolUse", "Stop", "preToolUse", "Own"]), st.lists(groups, max_size=2))
existing = st.fixed_dictionaries(
    {},
    optional={
        "hooks": hooks,
        "model": st.text(max_size=5),
        "permissions": st.dictionaries(st.text(max_size=3), st.none()),
    },
)
layouts = st.sampled_from([None, 2, "\t"])
comments = st.sampled_from(["", "// mine\n", "/* mine */ ", "\n\n"])


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(WITH_SETTINGS), existing, layouts, comments, st.sampled_from([0o600, 0o644]))
def test_connect_and_remove_leave_every_byte(
    agent: str, value: dict[str, Any], indent: int | str | None, comment: str, mode: int
) -> None:
    """Whatever stands in a configuration: connecting adds to it, again changes nothing, removing gives it back."""
    with TemporaryDirectory() as folder:
        home, file = Path(folder, "data"), Path(folder, "agent", "settings.json")
        home.mkdir()
        file.parent.mkdir()
        before = (comment + json.dumps(value, indent=indent, ensure_ascii=False)).encode()
        file.write_bytes(before)
        file.chmod(mode)
        connections = ConnectionFile(home)
        assert connections.write(agent, file, LINK)
        once = file.read_bytes()
        assert without(parse(once.decode()).value) == without(value)
        assert comment.strip().encode() in once
        assert not connections.write(agent, file, LINK)
        assert file.read_bytes() == once
        assert [one[:2] for one in connections.faults()] == [(agent, str(file))]
        assert connections.remove(agent, file)
        assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (before, mode)
        assert [one.name for one in file.parent.iterdir()] == ["settings.json"]
        assert connections.known() == {}


def without(value: dict[str, Any]) -> dict[str, Any]:
    """Settings without our hooks, and without what only holds them."""
    text = disconnected("claude", json.dumps(value)) or "{}"
    left = {name: one for name, one in json.loads(text).items() if name != "version"}
    kept = {event: entries for event, entries in left.pop("hooks", {}).items() if entries}
    return left | ({"hooks": kept} if kept else {})


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(WITH_SETTINGS), existing, layouts)
def test_what_was_changed_meanwhile_stays(agent: str, value: dict[str, Any], indent: int | str | None) -> None:
    """A person who edits the file after us keeps the edit; our entries go, and nothing else."""
    with TemporaryDirectory() as folder:
        home, file = Path(folder), Path(folder, "settings.json")
        file.write_text(json.dumps(value, indent=indent))
        connections = ConnectionFile(home)
        connections.write(agent, file, LINK)
        file.write_text(file.read_text().replace("{", '{ "mine": 1, // new\n', 1))
        assert not connections.write(agent, file, LINK), "connected it is"
        connections.remove(agent, file)
        text = file.read_text()
        assert "// new" in text
        assert without(parse(text).value) == without(value) | {"mine": 1}
        assert not file.with_name(file.name + BACKUP).exists()


@pytest.mark.parametrize("agent", AGENTS)
def test_a_file_that_was_not_there_is_gone_again(agent: str, tmp_path: Path) -> None:
    """A configuration that we made goes with its folders; it is the owner's alone where it holds the token."""
    file = place_of(agent, None, {}, tmp_path / "home")
    (tmp_path / "home").mkdir()
    connections = ConnectionFile(tmp_path)
    assert connections.write(agent, file, LINK)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert connections.remove(agent, file)
    assert list((tmp_path / "home").iterdir()) == []
    assert not connections.remove(agent, file)


@pytest.mark.parametrize("before", ["", "\n", "{}", '{"hooks": {}}'])
def test_a_file_that_says_nothing_stays(before: str, tmp_path: Path) -> None:
    """An empty configuration that somebody made is there again afterwards, as empty as it was."""
    file = tmp_path / "agent.json"
    file.write_text(before)
    connections = ConnectionFile(tmp_path)
    assert connections.write("cursor", file, LINK)
    assert connections.remove("cursor", file)
    assert file.read_text() == before


@pytest.mark.parametrize("agent", sorted(set(AGENTS) - {"opencode"}))
def test_a_command_never_blocks(agent: str) -> None:
    """Python ends with 2 where a file is gone, and 2 means "block": every command ends with 0 whatever happens."""
    text = connected(agent, "", LINK)
    found = [line.split(": ", 1)[1] for line in text.splitlines() if CLIENT in line]
    assert found
    for line in found:
        command = json.loads(line.strip().rstrip(","))
        assert os.waitstatus_to_exitcode(os.system(command)) == 0


def test_shadow_and_back_again() -> None:
    """Connecting with another wish replaces the entries."""
    for agent in AGENTS:
        text = connected(agent, "", LINK)
        shadow = connected(agent, text, replace(LINK, shadow=True))
        assert shadow != text
        assert "shadow" in shadow
        assert connected(agent, shadow, LINK) == text


def test_a_broken_configuration_is_not_touched(tmp_path: Path) -> None:
    """What is no JSON is named with its line, and stays as it is."""
    file = tmp_path / "settings.json"
    for text in ("{\n  nonsense", '{"hooks": []}', "[]", "\xff"):
        file.write_bytes(text.encode("latin-1"))
        with pytest.raises(ConfigError):
            ConnectionFile(tmp_path).write("claude", file, LINK)
        assert file.read_bytes() == text.encode("latin-1")
    assert [one.name for one in tmp_path.iterdir()] == ["settings.json"]


def test_switches_that_keep_hooks_from_running() -> None:
    """Settings of the agents that switch hooks off are found, and others are not taken for them."""
    assert switched_off("claude", '{"disableAllHooks": true}') == "disableAllHooks"
    assert switched_off("claude", '{"allowedHttpHookUrls": ["https://a.example"]}') == "allowedHttpHookUrls"
    assert switched_off("claude", '{"allowedHttpHookUrls": ["http://127.0.0.1:*"]}') == ""
    assert switched_off("gemini", '{"hooksConfig": {"enabled": false}}') == "hooksConfig.enabled"
    assert switched_off("claude", '{"disableAllHooks": false}') == ""


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a user whose service is stopped in the end."""
    (tmp_path / "project").mkdir()
    env = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "XDG_RUNTIME_DIR": "", "CODEX_HOME": ""}
    yield env
    trustfold("up", "--stop", cwd=tmp_path, env=env)


@pytest.mark.slow
def test_from_connect_to_remove(home: dict[str, str], tmp_path: Path) -> None:
    """One command connects and starts the server; status and doctor find it; another takes everything out."""
    place = tmp_path / "project"
    shown = trustfold("connect", "claude", "--print", cwd=place, env=home)
    assert json.loads(shown.stdout)["hooks"]["PreToolUse"]
    assert not (tmp_path / "data").exists(), "to print is to change nothing"

    done = trustfold("connect", "claude", cwd=place, env=home)
    assert (done.returncode, b"connected" in done.stderr) == (0, True), done.stderr
    assert b"twice" not in done.stderr
    behind = {"command": "trustfold", "args": ["mcp-proxy", "--", "x"]}
    (place / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": behind}}))
    again = trustfold("connect", "claude", cwd=place, env=home)
    assert b"already connected" in again.stderr
    assert b".mcp.json) and reports its calls by hooks as well: they count twice" in again.stderr
    assert all(stat.S_IMODE(one.stat().st_mode) == 0o600 for one in (tmp_path / "data" / "trustfold").iterdir())

    document = json.loads(trustfold("status", "--json", cwd=place, env=home).stdout)
    assert document["source"] == str(tmp_path / "data" / "trustfold" / "trustfold.sqlite")
    lines = trustfold("doctor", cwd=place, env=home).stdout.decode()
    assert "agent hooks: claude" in lines
    assert "count twice" in lines
    assert "not evaluated" not in lines
    client = [sys.executable, "-I", "-S", str(tmp_path / "data" / "trustfold" / CLIENT), "claude"]
    done = subprocess.run(client, input=b"[" * MAX_BYTES + b"[", capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"")
    lines = " ".join(trustfold("doctor", cwd=place, env=home).stdout.decode().split())
    assert "since the server started: too_large 1 " in lines
    (tmp_path / ".claude" / "settings.json").write_text('{"disableAllHooks": true}')
    assert "trustfold's entries are gone" in trustfold("doctor", cwd=place, env=home).stdout.decode()
    (tmp_path / ".claude" / "settings.json").unlink()

    assert trustfold("connect", "claude", cwd=place, env=home).returncode == 0
    removed = trustfold("connect", "claude", "--remove", cwd=place, env=home)
    assert b"hooks removed" in removed.stderr
    assert not (tmp_path / ".claude" / "settings.json").exists()
    assert b"stopped" in trustfold("up", "--stop", cwd=place, env=home).stderr
    assert b"none was running" in trustfold("up", "--stop", cwd=place, env=home).stderr


HERE = HookLink(Path("/"), sys.executable)


@pytest.mark.parametrize(
    ("agent", "link", "word"),
    [
        ("claude", HERE, CLIENT),
        ("codex", replace(HERE, python="/nowhere/python"), "/nowhere/python"),
        ("cursor", HERE, CLIENT),
        ("copilot", HERE, CLIENT),
    ],
)
def test_hooks_that_lead_nowhere_are_named(agent: str, link: HookLink, word: str, tmp_path: Path) -> None:
    """After a change of the installation the entries are there, and reach nobody."""
    connections = ConnectionFile(tmp_path)
    connections.write(agent, tmp_path / "hooks.json", link)
    ((found, _, fault),) = connections.faults()
    assert found == agent
    assert word in fault
    assert bool(fault) == bool(word)


def test_entries_that_send_the_token_to_a_port_are_named_and_replaced(tmp_path: Path) -> None:
    """Earlier versions wrote them: whatever listens there would get the token and every command."""
    handler = {"type": "http", "url": "http://127.0.0.1:8321/hooks/claude", "headers": {"X-Trustfold": "1"}}
    older = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [handler]}]}, "model": "m"}
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(older))
    connections = ConnectionFile(tmp_path)
    (tmp_path / "connections.json").write_text(json.dumps({str(file): {"agent": "claude"}}))
    assert "they send the token to whatever listens at" in connections.faults()[0][2]
    assert connections.write("claude", file, replace(HERE, home=tmp_path))
    (tmp_path / CLIENT).touch()
    assert connections.faults()[0][2] == ""
    assert "http" not in file.read_text()
    assert parse(file.read_text()).value["model"] == "m"


def test_doctor_says_when_hooks_had_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents went on without trustfold: nobody else would say so."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    service = UserService()
    service.prepare()
    assert stat.S_IMODE(service.home.stat().st_mode) == 0o700
    ConnectionFile(service.home).write("claude", tmp_path / "settings.json", LINK)
    assert "had no answer within" not in str(list(_hooks()))
    (service.home / LATE).touch()
    assert "had no answer within 0.5 s" in str(list(_hooks()))
    os.utime(service.home / LATE, (0, 0))
    assert "had no answer within" not in str(list(_hooks()))


def test_who_connects_at_the_same_time_agrees(tmp_path: Path) -> None:
    """Tokens, address and records of connections are one, however many begin at once."""
    services = [UserService({"XDG_DATA_HOME": str(tmp_path)}) for _ in range(8)]
    files = [tmp_path / f"{number}.json" for number in range(8)]

    def begin(service: UserService, file: Path) -> str:
        service.prepare()
        ConnectionFile(service.home).write("claude", file, LINK)
        return service.token

    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(begin, services, files))
    assert tokens == {services[0].token}
    assert set(ConnectionFile(services[0].home).known()) == set(map(str, files))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here")
@pytest.mark.parametrize("odd", ["plain", "with space", "100%n", 'quo"te', "back\\slash", "$HOME", "\u00fcn\u00ef"])
def test_systemd_understands_the_unit_whatever_the_path(odd: str, tmp_path: Path) -> None:
    """What stands in a path means nothing else in the unit: the command gets the path as it is."""
    unit = tmp_path / "trustfold.service"
    echo = [shutil.which("echo") or "echo", str(tmp_path / odd)]
    unit.write_text(unit_text(tmp_path / odd / "service.env", echo))
    env = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(["systemd-analyze", "--user", "verify", unit], env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    command = next(line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")).partition("=")[2]
    assert [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command)] == echo


def test_status_shows_what_was_not_said(home: dict[str, str], tmp_path: Path) -> None:
    """Connected in shadow, an agent in a loop hears nothing; `status` shows the words."""
    assert trustfold("connect", "codex", "--shadow", cwd=tmp_path, env=home).returncode == 0
    groups = json.loads((tmp_path / ".codex" / "hooks.json").read_text())["hooks"]
    command = groups["PostToolUse"][0]["hooks"][0]["command"]
    base = {"session_id": "s", "cwd": str(tmp_path), "tool_name": "Bash", "tool_input": {"command": "./look"}}
    equal = BehaviourRules().repetitive_calls.minor
    for number in range(equal):
        payload = base | {"hook_event_name": "PostToolUse", "tool_use_id": f"t{number}", "tool_response": "same"}
        done = subprocess.run(
            ["sh", "-c", command], input=json.dumps(payload).encode(), capture_output=True, check=True
        )
        assert (done.stdout, done.stderr) == (b"", b"")
    shown = trustfold("status", cwd=tmp_path, env=home).stdout.decode()
    assert "in shadow mode, codex would have received (context)" in shown
    assert f"was called {equal} times and gave the same result" in shown


def test_orders_need_a_terminal(home: dict[str, str], tmp_path: Path) -> None:
    """A command without a terminal, as an agent runs it, may look and may not acquit."""
    assert trustfold("up", "--detach", cwd=tmp_path, env=home).returncode == 0
    done = trustfold("remove", "Bash", "--yes", cwd=tmp_path, env=home)
    assert done.returncode != 0
    assert b"order" in done.stderr


def test_places_that_make_no_sense(home: dict[str, str], tmp_path: Path) -> None:
    """Two places, a folder that is not there, and --detach with a store of its own are refused with what to do."""
    for words in (
        ("connect", "claude", "--user", "--project", "."),
        ("connect", "claude", "--project", "nowhere"),
        ("up", "--detach", "--store", "x"),
        ("up", "--detach", "--stop"),
        ("up", "--stop", "--port", "8321"),
        ("connect", "nobody"),
    ):
        assert trustfold(*words, cwd=tmp_path, env=home).returncode == 2, words


@pytest.mark.parametrize("option", [(), ("--print",)])
def test_a_broken_file_is_named_by_its_path(option: tuple[str, ...], home: dict[str, str], tmp_path: Path) -> None:
    """And with the line at fault; no server is started for it."""
    file = tmp_path / "home" / ".gemini" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text("{\n  nonsense")
    done = trustfold("connect", "gemini", *option, cwd=tmp_path, env=home | {"HOME": str(tmp_path / "home")})
    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"trustfold: {file}: the configuration of gemini cannot be read (line 2")
    assert done.stderr.count(b"\n") == 1
    assert not (tmp_path / "home" / ".local").exists()

"""`trustfold reset` and `recover`: orders to a store, a running server, or whoever has the store."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from command_line import completions, trustfold, up
from fixed_rules import Rules
from recent_events import recent_events
from story import Story
from trustfold.cli.terminal import elided
from trustfold.streams.embedded.engine import EmbeddedEngine

pytestmark = pytest.mark.usefixtures("fixed_rules_file")

KEY = "http_request|domain=api.example.com|path_prefix=figures"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store after a bad day, in the place where commands look for it."""
    path = tmp_path / ".trustfold" / "trustfold.sqlite"
    with EmbeddedEngine.open(path, Rules()) as engine:
        engine.ingest(recent_events())
    return path


def documents(path: Path) -> list[dict[str, Any]]:
    """Every published state."""
    with EmbeddedEngine.open(path) as engine:
        return [json.loads(value) for value in engine.views.states().values()]


def states(path: Path) -> dict[str, str]:
    """Trust and circuits away from their default."""
    return {one["key"]: one["state"] for one in documents(path) if one.get("state", "trusted") != "trusted"}


def test_reset_of_a_tool_unblocks_its_finer_keys(store: Path, tmp_path: Path) -> None:
    """`reset bash` gives the tool and its keys clean trust, says so, and keeps who and why."""
    done = trustfold("reset", "bash", "--reason", "looked fine", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.decode() == "✓ bash|danger=root trusted again: reset by an operator\n"
    assert states(store) == {"service:atlassian": "escalated"}
    with EmbeddedEngine.open(store) as engine:
        (order,) = engine._store.connection.execute("SELECT value FROM log WHERE topic = 'commands'").fetchone()
    assert json.loads(order)["reason"] == "looked fine"


def test_reset_of_a_tool_ends_what_holds_for_its_user(tmp_path: Path) -> None:
    """An MCP tool fails in three workspaces: reset there by its name, as the hint says, it is trusted everywhere."""
    story = Story(user="ada")
    for workspace in ("shop", "blog", "docs"):
        story.moved(workspace=workspace).works("mcp__jira__search").fails("mcp__jira__search", with_="timeout", times=5)
    path = tmp_path / ".trustfold" / "trustfold.sqlite"
    with EmbeddedEngine.open(path, Rules()) as engine:
        engine.ingest([value for _, value in story.records])
    assert states(path)["mcp__jira__search"] == "escalated"
    for workspace in ("shop", "blog"):
        assert trustfold("reset", "mcp__jira__search", "--workspace", workspace, cwd=tmp_path).returncode == 0
    assert "mcp__jira__search" not in states(path)
    assert states(path)["mcp__jira__search|mcp_server=jira"] == "escalated", "in the third workspace"


def test_recover_restores_an_escalated_key_only(store: Path, tmp_path: Path) -> None:
    """`recover` gives an escalated key its trust back; a blocked one is refused with the way out."""
    done = trustfold("recover", "service:atlassian", "--json", cwd=tmp_path)
    assert [one["to"] for one in json.loads(done.stdout)["decisions"]] == ["trusted"]
    for key in ("bash", "bash|danger=root"):
        blocked = trustfold("recover", key, cwd=tmp_path)
        assert blocked.returncode == 1
        assert blocked.stderr.decode() == (
            "trustfold: bash|danger=root is blocked; `trustfold reset 'bash|danger=root'` unblocks it\n"
        )
    assert states(store) == {"bash|danger=root": "blocked"}


def test_approve_lets_one_call_pass_and_leaves_the_trust_as_it_is(store: Path, tmp_path: Path) -> None:
    """The state shows the approval; `--once` has to be said, and what is blocked cannot be approved."""
    done = trustfold("approve", "service:atlassian", "--once", "--for", "60", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "one call is approved" in done.stderr.decode()
    (state,) = (one for one in documents(store) if one["key"] == "service:atlassian" and one["kind"] == "trust")
    assert state["state"] == "escalated"
    assert state["approval_id"]
    assert trustfold("approve", "service:atlassian", cwd=tmp_path).returncode == 2
    assert trustfold("approve", "service:atlassian", "--once", "--for-session", cwd=tmp_path).returncode == 2
    unknown = trustfold("approve", "service:atlassian", "--for-session", cwd=tmp_path)
    assert b"name one: --for-session SESSION" in unknown.stderr
    given = trustfold("approve", "service:atlassian", "--for-session", "s7", cwd=tmp_path)
    assert b"all calls of session s7 are approved" in given.stderr
    (state,) = (one for one in documents(store) if one["key"] == "service:atlassian" and one["kind"] == "trust")
    assert state["approval_session_id"] == "s7"
    blocked = trustfold("approve", "bash", "--once", cwd=tmp_path)
    assert blocked.returncode == 1
    assert "is blocked; `trustfold reset" in blocked.stderr.decode()


def test_an_incident_is_acknowledged_by_the_key_that_status_shows(store: Path, tmp_path: Path) -> None:
    """Of a session by its id; its severity is sent along. `status` says who deals with it."""
    done = trustfold("acknowledge", "service:atlassian", cwd=tmp_path)
    assert b"is acknowledged" in done.stderr, done.stderr
    (noted,) = (one for one in documents(store) if one["kind"] == "incident")
    assert (noted["key"], noted["severity"]) == ("service:atlassian", "moderate")
    assert b"acknowledged 0 s ago by" in trustfold("status", cwd=tmp_path).stdout
    assert b"incident acknowledged" in trustfold("status", "service:atlassian", cwd=tmp_path).stdout
    done = trustfold("acknowledge", "service:atlassian", "--withdraw", cwd=tmp_path)
    assert b"service:atlassian is open again" in done.stderr, done.stderr
    assert "incident" not in {one["kind"] for one in documents(store)}
    done = trustfold("acknowledge", "service:atlassian", "--withdraw", cwd=tmp_path)
    assert (done.returncode, b"is not acknowledged" in done.stderr) == (2, True), done.stderr
    unknown = trustfold("acknowledge", "service:atlasian", cwd=tmp_path)
    assert b"is no incident that needs somebody; did you mean 'service:atlassian'?" in unknown.stderr
    story = Story(session="s9").fails("read", {"path": "a"}, with_="invalid_input", times=7)
    with EmbeddedEngine.open(store, Rules()) as engine:
        engine.ingest(recent_events(value for _, value in story.records))
    done = trustfold("acknowledge", "s9", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "session:s9" in {one["key"] for one in documents(store)}


def test_approve_lets_one_dangerous_call_pass_of_which_nothing_is_known(store: Path, tmp_path: Path) -> None:
    """As a refusal names it: the key of a call that was never made, and its workspace."""
    key = "Bash|danger=forced_push"
    done = trustfold("approve", key, "--once", "--workspace", "/srv/app", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (state,) = (one for one in documents(store) if one["key"] == key)
    assert (state["state"], state["workspace_id"], bool(state["approval_id"])) == ("trusted", "/srv/app", True)


def test_orders_stay_in_the_workspace_of_the_environment(store: Path, tmp_path: Path) -> None:
    """TRUSTFOLD_WORKSPACE says whom `reset` and `recover` mean; other workspaces stay as they are."""
    elsewhere = {"TRUSTFOLD_WORKSPACE": "elsewhere"}
    before = states(store)
    for words in (["reset", "bash"], ["recover", "service:atlassian"]):
        done = trustfold(*words, cwd=tmp_path, env=elsewhere)
        assert done.returncode == 2
        assert "in workspace elsewhere" in done.stderr.decode()
    assert "nothing to reset" in trustfold("reset", "all", "--yes", cwd=tmp_path, env=elsewhere).stderr.decode()
    assert states(store) == before
    assert trustfold("reset", "bash", "--workspace", "acme", cwd=tmp_path, env=elsewhere).returncode == 0


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("reset ", ["bash|danger=root", "service:atlassian"]),
        ("reset s", ["service:atlassian"]),
        ("nudge ", ["off", "gentle", "direct", "full", "save"]),
        ("recovery ask ", ["save"]),
        ("recovery ask save ", ["workspace", "user"]),
        ("model a", ["auto"]),
    ],
)
def test_the_shell_completes(line: str, offered: list[str], store: Path, tmp_path: Path) -> None:
    """Keys that there is something to reset about, live; the words of settings."""
    assert store.is_file()
    assert completions(line, "zsh", tmp_path)[1::3] == offered


def test_reset_all_asks_first(store: Path, tmp_path: Path) -> None:
    """Without a terminal to ask in and without --yes nothing is done; with it, everything is clean."""
    asked = trustfold("reset", "all", cwd=tmp_path)
    assert asked.returncode == 2
    assert "add --yes" in asked.stderr.decode()
    assert len(states(store)) == 2
    assert trustfold("reset", "all", "--yes", cwd=tmp_path).returncode == 0
    assert states(store) == {}
    nothing = trustfold("reset", "all", "--yes", cwd=tmp_path)
    assert "nothing to reset" in nothing.stderr.decode()
    assert nothing.returncode == 0


def test_an_unknown_key_is_explained(store: Path, tmp_path: Path) -> None:
    """A misspelt key changes nothing and names the nearest one that is known."""
    done = trustfold("reset", "service:atlasian", cwd=tmp_path)
    assert done.returncode == 2
    assert "'service:atlasian' has no state to change; did you mean 'service:atlassian'?" in done.stderr.decode()
    assert len(states(store)) == 2


def test_a_key_of_several_workspaces_needs_the_workspace(store: Path, tmp_path: Path) -> None:
    """When two workspaces have the key, one must be chosen; the other stays as it is."""
    with EmbeddedEngine.open(store) as engine:
        engine.ingest([line.replace(b'"acme"', b'"other"').replace(b'"id":"', b'"id":"o-') for line in recent_events()])
    vague = trustfold("reset", "bash", cwd=tmp_path)
    assert vague.returncode == 2
    assert vague.stderr.decode() == (
        "trustfold: 'bash' is known in several workspaces; choose one:\n"
        "  trustfold reset bash --workspace acme\n  trustfold reset bash --workspace other\n"
    )
    assert trustfold("reset", "bash", "--workspace", "other", cwd=tmp_path).returncode == 0
    table = trustfold("status", cwd=tmp_path).stdout.decode()
    keys = table.partition("Reliability Status")[2].splitlines()
    assert [line.split()[0] for line in keys if " bash|danger=root " in line] == ["acme"]


def test_orders_reach_the_engine_that_has_the_store(store: Path, tmp_path: Path) -> None:
    """While `up` runs over the store, `reset` hands the order to it, by its address or through the file alone."""
    with up(cwd=tmp_path) as server:
        assert trustfold("reset", "bash", cwd=tmp_path).returncode == 0
        done = trustfold("recover", "service:atlassian", "--url", server.url, cwd=tmp_path)
        assert done.stdout.decode() == "✓ service:atlassian trusted again: recovered by an operator\n"
        assert all(one.get("state", "trusted") == "trusted" for one in server.get("/v1/state")["states"])
    assert states(store) == {}


def test_an_open_circuit_is_closed_too(store: Path, tmp_path: Path) -> None:
    """`reset` of a service that is escalated and whose circuit is open: trust in it and its keys, and the circuit."""
    broken = [line for line in recent_events() if b'"morning-report"' in line][:10]
    with EmbeddedEngine.open(store) as engine:
        engine.ingest([line.replace(b'"acme"', b'"w9"').replace(b'"id":"', b'"id":"o-') for line in broken])
    assert {"service:api.example.com", KEY} < states(store).keys()
    done = trustfold("reset", "service:api.example.com", "--workspace", "w9", cwd=tmp_path)
    assert done.stdout.decode().splitlines() == [
        "↻ service:api.example.com circuit half-open: one probe may test it",
        "✓ service:api.example.com trusted again: reset by an operator",
        f"✓ {KEY} trusted again: reset by an operator",
        "✓ service:api.example.com circuit closed: closed by an operator",
    ]
    assert not {key for key in states(store) if "example.com" in key}


ODD_NAMES = ["x" * 200 + "a", "x" * 200 + "b", "a|b", "a=b", "a\\b", "a\nb", "工具", "service:crm", "tool:bash"]


@pytest.mark.slow
def test_odd_tool_names_are_reset_by_the_key_that_status_shows(tmp_path: Path) -> None:
    """Each has a key of its own; that key alone is given clean trust, whole or as a narrow table has cut it."""
    path = tmp_path / ".trustfold" / "trustfold.sqlite"
    story = Story()
    for name in ODD_NAMES:
        story.fails(name, {"n": 1}, times=3)
    with EmbeddedEngine.open(path, Rules()) as engine:
        engine.ingest([value for _, value in story.records])
    stuck = states(path)
    assert len(stuck) == len(ODD_NAMES)
    shown = json.loads(trustfold("status", "--json", cwd=tmp_path).stdout)["states"]
    keys = [one["key"] for one in shown if one["kind"] == "trust"]
    assert sorted(keys) == sorted(stuck)
    for key in keys:
        given = elided(key, 180) if key.endswith("b") and len(key) > 180 else key
        assert trustfold("reset", given, cwd=tmp_path).returncode == 0, given
        del stuck[key]
        assert states(path) == stuck


def of_two_folders(tmp_path: Path) -> tuple[Path, Path, str]:
    """A server's store in which `deploy` is escalated in two projects; returns these and the store."""
    shop, blog = tmp_path / "the shop", tmp_path / "blog"
    for place in (shop, blog):
        (place / ".git").mkdir(parents=True)
        (place / "src").mkdir()
    story = Story(user="ada")
    for place in (shop, blog):
        story.moved(workspace=str(place)).works("deploy").fails("deploy", with_="timeout", times=5)
    path = tmp_path / "store.sqlite"
    with EmbeddedEngine.open(path, Rules()) as engine:
        engine.ingest([value for _, value in story.records])
    return shop, blog, str(path)


def untrusted(path: str) -> list[str]:
    """Workspaces in which `deploy` is not trusted."""
    found = [one for one in documents(Path(path)) if one["key"] == "deploy" and one.get("state") == "escalated"]
    return sorted(one["workspace_id"] for one in found if one.get("workspace_id"))


def test_the_current_folder_decides_the_workspace(tmp_path: Path) -> None:
    """In a project an order is about that project; elsewhere it says in which, by commands that work as printed."""
    shop, blog, path = of_two_folders(tmp_path)
    done = trustfold("reset", "deploy", "--store", path, cwd=shop / "src")
    assert (done.returncode, untrusted(path)) == (0, [str(blog)])
    shop, blog, path = of_two_folders(tmp_path / "again")
    vague = trustfold("approve", "deploy", "--once", "--store", path, cwd=tmp_path)
    assert vague.returncode == 2
    lines = vague.stderr.decode().splitlines()[1:]
    assert lines == [
        f"  trustfold approve deploy --once --store {path} --workspace {blog}",
        f"  trustfold approve deploy --once --store {path} --workspace '{shop}'",
    ]
    first = shlex.split(lines[1])
    assert trustfold(*first[1:], cwd=tmp_path).returncode == 0
    told = trustfold("reset", "deploy", "--workspace", str(shop), "--store", path, cwd=blog)
    assert (told.returncode, untrusted(path)) == (0, [str(blog)]), "what is given has the last word"


def test_an_order_from_elsewhere_says_where(tmp_path: Path) -> None:
    """A key that only one project has is meant from everywhere, and the project is named."""
    shop = tmp_path / "shop"
    story = Story(user="ada").moved(workspace=str(shop)).works("deploy").fails("deploy", with_="timeout", times=5)
    path = tmp_path / "store.sqlite"
    with EmbeddedEngine.open(path, Rules()) as engine:
        engine.ingest([value for _, value in story.records])
    done = trustfold("recover", "deploy", "--store", path, cwd=tmp_path)
    assert (done.returncode, done.stderr.decode()) == (0, f"in workspace {shop}\n")

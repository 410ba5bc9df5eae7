"""`trustfold status`: what is not trusted and what leads back, from a store, a server, or both at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import trustfold, up
from fixed_rules import Rules
from rich.console import Console, RenderableType
from trustfold.cli.demo import events
from trustfold.cli.status import details, overview_table
from trustfold.projections.incidents import OpenAsk, SessionNews, ranked
from trustfold.schemas.decision_text import circuit_word, recovery_words
from trustfold.schemas.events import epoch_ms
from trustfold.schemas.public_state import BreakerUpdated, TrustUpdated
from trustfold.streams.embedded.engine import EmbeddedEngine

pytestmark = pytest.mark.usefixtures("fixed_rules_file")

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def at(**ahead: float) -> str:
    """A time after now, as on the wire."""
    return (NOW + timedelta(**ahead)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


ENVELOPE = {"schema_version": "1.0", "id": "s1", "time": at(), "workspace_id": "w1"}


def trust(key: str, state: str, **fields: Any) -> TrustUpdated:
    """A public trust state."""
    own = {"kind": "trust", "key": key, "scope": "key", "state": state, "threshold": 3}
    return msgspec.convert(ENVELOPE | own | fields, TrustUpdated)


def circuit(key: str, state: str, **fields: Any) -> BreakerUpdated:
    """A public circuit state."""
    own = {"kind": "breaker", "key": key, "scope": "tool", "state": state, "mode": "enforce"}
    return msgspec.convert(ENVELOPE | own | fields, BreakerUpdated)


def shown(what: RenderableType, width: int = 100) -> str:
    """What a person sees."""
    out = StringIO()
    Console(file=out, width=width, no_color=True).print(what)
    return out.getvalue()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store after a bad day."""
    path = tmp_path / "store.sqlite"
    with EmbeddedEngine.open(path, Rules()) as engine:
        engine.ingest(events())
    return path


def test_the_table_is_the_seeds() -> None:
    """Key, state, failures and recovery stand in their columns; blocked first, trusted only counted."""
    states = [
        trust("http_request|domain=api.bad.com", "recovering", failures=5.0, successes=2, successes_needed=3),
        trust("bash|command=rm", "blocked", failures=1.0),
        trust("readFile|path_prefix=/etc", "escalated", failures=3.0, recovery_at=at(minutes=12)),
        trust("deploy", "trusted", failures=0.9),
    ]
    table = shown(overview_table(states, "auto", NOW, everything=False))
    rows = [line.split("  ") for line in table.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert ["Tool/Parameters", "State", "Failures", "Recovery"] in cells
    assert cells.index(["bash|command=rm", "BLOCKED", "-", "manual reset required"]) < cells.index(
        ["readFile|path_prefix=/etc", "ESCALATED", "3/3", "cooldown: 12m remaining"]
    )
    assert ["http_request|domain=api.bad.com", "RECOVERING", "5/3", "2/3 successes"] in cells
    assert "deploy" not in table
    assert "1 blocked, 1 escalated, 1 recovering, 1 trusted with recent failures (--all shows them)" in table
    assert "Recovery mode: auto" in table
    assert "deploy" in shown(overview_table(states, None, NOW, everything=True))


def test_an_outage_is_told_once() -> None:
    """Incidents come first, with failures and recovery of their keys, cause and order; what is part of none follows."""
    outage = [
        trust("service:api", "escalated", scope="service", failures=5.0, recovery_at=at(minutes=12), reason="why"),
        trust("fetch|domain=api", "escalated", failures=4.0, last_error="HTTP 503"),
        circuit("service:api", "open", open_until=at(seconds=20)),
    ]
    others = [trust("bash", "removed"), circuit("tool:a", "closed", mode="observe"), trust("deploy", "trusted")]
    asking = SessionNews("s9", "w1", asks=(OpenAsk("c1", "", "bash git push", 0),), news_ms=epoch_ms(NOW))
    incidents = [one.record() for one in ranked([*outage, *others], [asking], epoch_ms(NOW))]
    table = shown(overview_table([*outage, *others], "auto", NOW, incidents=incidents, everything=False), 160)
    places = [table.index(word) for word in ("Failures", "s9", "service:api ", "bash   ", "tool:a")]
    assert places == sorted(places)
    assert table.count("fetch|domain=api") == table.count("OPEN") == 0
    for words in ("WAITING", "5/3", "cooldown: 12m remaining", "a probe in 20s", "HTTP 503", "trustfold reset"):
        assert table.count(words) == 1, words
    assert "every tool is trusted" not in table


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (trust("a", "escalated", recovery_at=at(seconds=45)), "cooldown: 45s remaining"),
        (trust("a", "escalated", recovery_at=at(minutes=95)), "cooldown: 1h 35m remaining"),
        (trust("a", "escalated", recovery_at=at(seconds=-1)), "the next success starts recovery"),
        (trust("a", "recovering", successes=1, successes_needed=3), "1/3 successes"),
        (trust("a", "recovering", recovery_pending=True), "waits for `trustfold recover`"),
        (trust("a", "blocked"), "manual reset required"),
        (trust("a", "removed"), "removed by an operator"),
        (trust("a", "trusted"), ""),
    ],
)
def test_recovery_is_said_in_words(state: TrustUpdated, words: str) -> None:
    """Each state says what leads back to trust, with the time that is left."""
    assert recovery_words(state, NOW) == words


@pytest.mark.parametrize(
    ("state", "word", "next_"),
    [
        (circuit("tool:a", "open", open_until=at(seconds=20)), "open", "a probe in 20s"),
        (circuit("tool:a", "open", open_until=at(seconds=-1)), "half-open", "one probe may go"),
        (circuit("tool:a", "half_open", successes=1), "half-open", "1 probes succeeded, one more may go"),
        (
            circuit("tool:a", "half_open", lease={"holder": "g1", "call_id": "c", "lease_until": at(seconds=5)}),
            "half-open",
            "probe by g1 under way",
        ),
        (circuit("tool:a", "forced_open"), "forced_open", "held open until closed by command"),
        (circuit("tool:a", "forced_open", open_until=at(minutes=5)), "forced_open", "held open for 5m"),
        (circuit("tool:a", "closed", mode="observe"), "closed", "observed only: blocks nothing"),
        (circuit("tool:a", "closed", mode="disabled"), "closed", "switched off"),
    ],
)
def test_circuits_are_read_at_the_present(state: BreakerUpdated, word: str, next_: str) -> None:
    """An open circuit whose time is over is half-open for whoever reads it; each says what comes next."""
    assert circuit_word(state, NOW) == word
    assert next_ in shown(overview_table([state], None, NOW, everything=False))


def test_a_quiet_day_says_so() -> None:
    """With nothing to show there is no empty table."""
    assert "every tool is trusted, every circuit closed" in shown(overview_table([], "ask", NOW, everything=False))


def test_workspaces_are_told_apart() -> None:
    """Keys of several workspaces get a column that says which."""
    states = [trust("bash", "blocked"), trust("bash", "blocked", workspace_id="w2")]
    table = shown(overview_table(states, None, NOW, everything=False))
    assert "Workspace" in table
    assert "w2" in table
    assert "Workspace" not in shown(overview_table(states[:1], None, NOW, everything=False))


def test_what_holds_for_a_user_everywhere_is_told_apart() -> None:
    """Whose it is, the mean share of failed calls, and when it ends; in the overview and in the details."""
    fields: dict[str, Any] = {"failure_rate": 0.8333, "measured": 18, "reason": "fails across 3 workspaces"}
    whose = {"scope": "user", "user_id": "ada", "workspace_id": None, "threshold": None}
    state = trust("deploy", "escalated", **whose, **fields, expires_at=at(hours=5))
    table = shown(overview_table([state], None, NOW, everything=False))
    for words in ("user ada", "deploy", "ESCALATED", "83%", "ends in 5h 0m"):
        assert words in table
    assert recovery_words(msgspec.structs.replace(state, expires_at=at(hours=-1)), NOW) == "is over"
    told = shown(details("deploy", [state], [], NOW))
    assert "fails across 3 workspaces" in told
    assert "user ada" in told


def test_markup_in_names_is_only_text() -> None:
    """A tool called `[red]` neither colours the table nor breaks it."""
    states = [trust("[red]|x=[/]", "blocked"), circuit("tool:[bold]", "open", open_until=at(minutes=1))]
    table = shown(overview_table(states, None, NOW, everything=False))
    assert "[red]|x=[/]" in table
    assert "tool:[bold]" in table
    assert "[red]" in shown(details("[red]", states, [], NOW))


def test_a_store_is_read_where_it_lies(store: Path, tmp_path: Path) -> None:
    """`status --store` shows the day's remains; --json gives the records as they are on the `state` topic."""
    table = trustfold("status", "--store", store, cwd=tmp_path).stdout.decode()
    for key in ("bash|danger=root ", "service:atlassian "):
        assert key in table
    assert "bash " not in table
    assert "http_request" not in table
    document = json.loads(trustfold("status", "--store", store, "--json", cwd=tmp_path).stdout)
    with EmbeddedEngine.open(store) as engine:
        assert document["states"] == [json.loads(value) for value in engine.views.states().values()]
    assert document["recovery_mode"] == "auto"
    everything = trustfold("status", "--store", store, "--all", cwd=tmp_path, env={"COLUMNS": "120"}).stdout.decode()
    assert "mcp_atlassian_search|mcp_server=atlassian " in everything


def test_one_key_with_its_history(store: Path, tmp_path: Path) -> None:
    """`status KEY` tells all about a key, its finer keys and its circuit; with its history, what was decided when."""
    told = trustfold("status", "bash", "--store", store, "--include-history", cwd=tmp_path).stdout.decode()
    assert "bash|command=cat  trusted" in told
    assert "bash|danger=root  blocked" in told
    assert "security concern: a dangerous command was attempted" in told
    assert "2026-03-02 09:45:12  ✕  bash|danger=root blocked" in told
    assert "service:atlassian" not in told
    quiet = trustfold("status", "nothing", "--store", store, cwd=tmp_path)
    assert quiet.stdout == b"nothing: trusted, no recent failures\n"
    assert quiet.returncode == 0
    document = json.loads(
        trustfold("status", "bash", "--store", store, "--include-history", "--json", cwd=tmp_path).stdout
    )
    assert {one["key"] for one in document["history"]} == {"bash|danger=root"}
    trusts = {one["key"] for one in document["states"] if one["kind"] == "trust"}
    assert trusts == {"bash|danger=root", "bash|command=rm", "bash|command=cat"}


@pytest.fixture
def served(store: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a server over that store."""
    with up("--store", store, cwd=tmp_path) as server:
        yield server.url


def test_a_running_server_and_its_store_say_the_same(served: str, store: Path, tmp_path: Path) -> None:
    """While `up` runs, its address and its file can both be asked, and answer alike."""
    by_url = trustfold("status", "--url", served, "--json", cwd=tmp_path)
    by_store = trustfold("status", "--store", store, "--json", cwd=tmp_path)
    for one in (by_url, by_store):
        assert one.returncode == 0
    assert json.loads(by_url.stdout)["states"] == json.loads(by_store.stdout)["states"]
    by_environment = trustfold("status", cwd=tmp_path, env={"TRUSTFOLD_URL": served, "TRUSTFOLD_BROKER": "nobody:1"})
    assert "service:atlassian" in by_environment.stdout.decode()


def test_whether_a_session_is_paused(tmp_path: Path) -> None:
    """For CI: its reason and exit code 1; 0 without one, and 2 for a session that nobody knows."""
    with up("--store", tmp_path / "store.sqlite", cwd=tmp_path) as server:

        def asked(session: str) -> tuple[int, str]:
            done = trustfold("status", "--session", session, "--url", server.url, cwd=tmp_path)
            return done.returncode, done.stdout.decode()

        def look(number: int, **more_fields: str) -> None:
            call = {"tool_name": "Bash", "tool_input": {"command": "./look"}, "tool_use_id": f"t{number}"}
            for event in ("PreToolUse", "PostToolUse", "PostToolBatch"):
                more = {"tool_response": "same"} if event == "PostToolUse" else {}
                payload = {"hook_event_name": event, "session_id": "s", **call, **more, **more_fields}
                server.post("/hooks/claude", json.dumps(payload).encode())

        assert asked("last")[0] == 2
        look(0, session_id="earlier")
        look(0)
        assert asked("s") == asked("last") == (0, "s: not paused\n")
        for number in range(1, 12):
            look(number)
        code, told = asked("s")
        assert code == 1
        assert told.startswith("s: paused: Stopped after ")
        look(0, agent_id="scout", agent_type="helper")
        assert asked("last") == (code, told)
        assert asked("t")[0] == 2
        shown = trustfold("story", "last", "--url", server.url, cwd=tmp_path)
        assert shown.stdout.startswith(b"Session s\n"), shown.stderr


LONG = "http_request|domain=api.internal.example-company.com|path_prefix=v1"


def on_a_terminal(width: int) -> list[str]:
    """The lines of the overview on a terminal of so many columns."""
    screen = Console(file=StringIO(), width=width)
    screen.print(overview_table([trust(LONG, "blocked")], None, NOW, everything=False))
    return screen.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_long_key_stays_on_one_line_and_is_recognised() -> None:
    """Where the terminal is too narrow a key loses its middle, never its tool or what tells it from others."""
    assert LONG in "".join(on_a_terminal(140))
    assert all(len(line) <= 80 for line in on_a_terminal(80))
    [line] = [line for line in on_a_terminal(80) if "http_request" in line]
    assert "http_request|" in line
    assert "path_prefix=v1" in line
    assert "…" in line


def test_the_latest_decisions_about_tools(store: Path) -> None:
    """`reliability history [N]` needs no recording; the newest decision is the last."""
    command = ("reliability", "history", "--store", store.name)
    everything = json.loads(trustfold(*command, "--json", cwd=store.parent).stdout)["history"]
    assert len(everything) > 2
    for number in (("2",), ("limit", "2")):
        shown = json.loads(trustfold(*command, *number, "--json", cwd=store.parent).stdout)["history"]
        assert shown == everything[-2:]
    text = trustfold(*command, "1", cwd=store.parent).stdout.decode()
    assert everything[-1]["reason"][:20] in text.replace("\n", " ")
    assert trustfold(*command, "many", cwd=store.parent).returncode == 2

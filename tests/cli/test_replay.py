"""`trustfold replay`: decisions on standard output as they go on the wire, everything else on standard error."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import started, trustfold
from fixed_rules import Rules
from scenarios import ALL
from story import Story
from trustfold.cli.demo import events
from trustfold.cli.replay import TOPICS
from trustfold.history.catalogue import connect
from trustfold.history.inputs import lined_up
from trustfold.history.whatif.rules_replay import RulesReplay
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.projections.topology import DECISION_TOPICS

pytestmark = pytest.mark.usefixtures("fixed_rules_file")


def folded(lines: list[bytes]) -> list[StageOutput]:
    """Everything that these lines cause."""
    topology = LocalTopology(Rules())
    return topology.feed("events", lines) + topology.tick(topology.stream_time)


def wire(outputs: list[StageOutput], topics: tuple[str, ...] = DECISION_TOPICS) -> bytes:
    """Values of the topics' outputs, a line each."""
    return b"".join(out.value + b"\n" for out in outputs if out.topic in topics and out.value is not None)


@pytest.fixture
def day(tmp_path: Path) -> Path:
    """A file of events."""
    path = tmp_path / "day.ndjson"
    path.write_bytes(b"\n".join(events()) + b"\n")
    return path


@pytest.mark.parametrize("name", sorted(ALL))
def test_json_is_the_wire_format_and_nothing_else(name: str, tmp_path: Path) -> None:
    """With --json each decision is a line of exactly the bytes that would be published, in the order they were made."""
    lines = [value for _, value in ALL[name]().records]
    (tmp_path / "story.ndjson").write_bytes(b"\n".join(lines))
    done = trustfold("replay", "story.ndjson", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == wire(folded(lines))
    assert done.stdout


def test_files_are_folded_in_order_plain_packed_and_from_a_pipe(day: Path, tmp_path: Path) -> None:
    """A plain file, a gzip file of any name and standard input give the same decisions; several files are one run."""
    lines = events()
    expected = wire(folded(lines))
    (tmp_path / "packed").write_bytes(gzip.compress(day.read_bytes()))
    (tmp_path / "one").write_bytes(b"\n".join(lines[:20]))
    (tmp_path / "two").write_bytes(gzip.compress(b"\r\n\n".join(lines[20:])))
    assert trustfold("replay", "packed", "--json", cwd=tmp_path).stdout == expected
    assert trustfold("replay", "-", "--json", cwd=tmp_path, stdin=day.read_bytes()).stdout == expected
    packed = gzip.compress(day.read_bytes())
    assert trustfold("replay", "-", "--json", cwd=tmp_path, stdin=packed).stdout == expected
    assert trustfold("replay", "one", "two", "--json", cwd=tmp_path).stdout == expected


def test_the_summary_is_on_standard_error(day: Path, tmp_path: Path) -> None:
    """Events, decisions by type, dead letters by reason and speed are told beside the data."""
    done = trustfold("replay", day, "--json", cwd=tmp_path)
    said = done.stderr.decode()
    outputs = [out for out in folded(events()) if out.topic in DECISION_TOPICS]
    assert f"{len(events())} events in " in said
    assert " events/s)" in said
    assert f"{len(outputs)} decisions: " in said
    for kind in {out.type for out in outputs}:
        assert f"{kind} {sum(out.type == kind for out in outputs)}" in said
    assert "dead letters" not in said


def test_bad_lines_are_counted_and_kept_and_stop_nothing(tmp_path: Path) -> None:
    """A bad line becomes a dead letter with its reason; the events around it fold as without it."""
    lines = events()
    bad = [b"not json", b'{"type":"tool_call.started"}', b"\xff\xfe"]
    mixed = [*lines[:10], bad[0], *lines[10:30], bad[1], bad[2], *lines[30:]]
    done = trustfold("replay", "-", "--json", "--dead-letters", "letters", cwd=tmp_path, stdin=b"\n".join(mixed))
    assert done.returncode == 0
    assert done.stdout == wire(folded(lines))
    letters = [json.loads(line) for line in (tmp_path / "letters").read_text().splitlines()]
    assert [letter["offset"] for letter in letters] == [10, 31, 32]
    assert letters[0]["value"] == "not json"
    assert letters[2]["value_base64"]
    assert "3 dead letters: " in done.stderr.decode()
    assert re.search(r"; first record 11, \$: not JSON", done.stderr.decode())
    for letter in letters:
        assert f"{letter['reason']} 1" in done.stderr.decode()


@pytest.mark.parametrize("name", ["nudges", "breakers,escalations", "state", "all"])
def test_topics_widen_or_narrow_the_output(name: str, day: Path, tmp_path: Path) -> None:
    """--topics chooses what is printed; `all` has state, outcomes and appended events too."""
    lines = [*events(), b"bad"]
    day.write_bytes(b"\n".join(lines))
    done = trustfold("replay", day, "--json", "--topics", name, cwd=tmp_path)
    outputs = folded(lines)
    topics = tuple({out.topic for out in outputs}) if name == "all" else tuple(name.split(","))
    assert done.stdout == wire(outputs, topics)
    assert done.stdout
    assert name != "all" or b'"call.outcome"' in done.stdout


def test_people_see_rows(day: Path, tmp_path: Path) -> None:
    """Without --json each decision is a row: day, time, session, what, why."""
    done = trustfold("replay", day, cwd=tmp_path)
    shown = done.stdout.decode()
    assert shown.startswith("2026-03-02\n09:00:12 ")
    assert "09:00:12 morn…-report ! service:api.example.com escalated: 3/3 failures in 1h" in shown
    assert re.search(r"^\d\d:\d\d:12 tidy-up {6}✕ bash\|danger=root blocked: security concern", shown, re.MULTILINE)
    assert "→ interrupt nudge: Stopped after" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_limit_cuts_the_rows_not_the_folding(day: Path, tmp_path: Path) -> None:
    """--limit prints so many decisions; all are folded and counted, and the rest is announced."""
    whole = trustfold("replay", day, "--json", cwd=tmp_path)
    few = trustfold("replay", day, "--json", "--limit", "3", cwd=tmp_path)
    assert few.stdout.splitlines() == whole.stdout.splitlines()[:3]
    total = len(whole.stdout.splitlines())
    assert f"... and {total - 3} more decisions" in few.stderr.decode()
    assert f"{total} decisions: " in few.stderr.decode()
    assert trustfold("replay", day, "--json", "--limit", "0", cwd=tmp_path).stdout == whole.stdout


def test_rules_are_read_from_a_file(day: Path, tmp_path: Path) -> None:
    """Other rules give other decisions: with a threshold of four the third failure escalates nobody."""
    (tmp_path / "rules.toml").write_text("[trust.default_rule]\ncount_threshold = 4\n")
    done = trustfold("replay", day, "--json", "--rules", "rules.toml", cwd=tmp_path)
    reasons = {json.loads(line).get("reason") for line in done.stdout.splitlines()}
    assert any(reason and reason.startswith("4/4 failures in ") for reason in reasons)
    assert not any(reason and reason.startswith("3/3 failures in 1h") for reason in reasons)
    by_environment = trustfold("replay", day, "--json", cwd=tmp_path, env={"TRUSTFOLD_RULES": "rules.toml"})
    assert by_environment.stdout == done.stdout
    (tmp_path / "empty.toml").write_text("")
    shipped = {"TRUSTFOLD_RULES": "empty.toml", "TRUSTFOLD_THRESHOLD": "4"}
    by_threshold = trustfold("replay", day, "--json", cwd=tmp_path, env=shipped)
    assert by_threshold.stdout == done.stdout


def test_realtime_takes_a_speed_or_none(day: Path, tmp_path: Path) -> None:
    """--realtime may stand before a file; at a high speed it changes nothing but the waiting."""
    expected = wire(folded(events()))
    assert trustfold("replay", "--realtime", "1e9", day, "--json", cwd=tmp_path).stdout == expected
    begun = time.monotonic()
    day.write_bytes(b"\n".join(events()[:6]))
    assert trustfold("replay", "--realtime", "8", day, "--json", cwd=tmp_path).stdout == wire(folded(events()[:6]))
    assert time.monotonic() - begun > 1, (
        "eight seconds between the first outcome and the last, at eight times the speed"
    )
    day.write_bytes(b"\n".join(events()[:2]))
    for words in (["--realtime", str(day)], [str(day), "--realtime"]):
        assert trustfold("replay", *words, "--json", cwd=tmp_path).returncode == 0
    assert trustfold("replay", day, "--realtime", "-1", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing.ndjson"], "missing.ndjson: no such file"),
        (["."], ".: is a directory; name the files in it"),
        (["-", "-"], "standard input (-) can be read only once"),
        (["-", "--topics", "nonsense"], "unknown topic 'nonsense'; choose from "),
        (["-", "--dead-letters", "-"], "--dead-letters needs a file"),
        (["-", "--dead-letters", "no/such/folder"], "no/such/folder: cannot be written"),
        (["-", "--rules", "missing.toml"], "missing.toml: cannot be read"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_folded(words: list[str], said: str, tmp_path: Path) -> None:
    """A wrong argument is one line and exit code 2."""
    done = trustfold("replay", *words, cwd=tmp_path, stdin=b"\n".join(events()))
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode().startswith(f"trustfold: {said}")
    assert done.stderr.count(b"\n") == 1


def test_a_damaged_file_is_told_after_what_stood_before(tmp_path: Path) -> None:
    """A gzip file that ends early gives the decisions up to there, one line and exit code 1."""
    packed = gzip.compress(b"\n".join(events()))
    (tmp_path / "cut.gz").write_bytes(packed[: len(packed) // 2])
    done = trustfold("replay", "cut.gz", "--json", cwd=tmp_path)
    assert done.returncode == 1
    assert wire(folded(events())).startswith(done.stdout)
    assert done.stdout
    assert done.stderr.startswith(b"trustfold: the input ends early or is damaged")


@pytest.mark.parametrize("words", [["--json"], ["--limit", "0"]])
def test_a_closed_pipe_ends_it_quietly(words: list[str], tmp_path: Path) -> None:
    """`| head -1` gets its line; there is no complaint and no traceback."""
    many = b"\n".join(
        value.replace(b'"session_id":"', b'"session_id":"%d-' % number).replace(b'"id":"', b'"id":"%d' % number)
        for number in range(300)
        for value in events()
    )
    (tmp_path / "many.ndjson").write_bytes(many)
    pipe = subprocess.PIPE
    with started("replay", "many.ndjson", *words, cwd=tmp_path, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(60) == 0
    assert said == b""


def test_decisions_of_a_slow_pipe_come_at_once(tmp_path: Path) -> None:
    """From standard input each decision is out as soon as its event is in, so that `tail -f` can be piped in."""
    topology = LocalTopology(Rules())
    pipe = subprocess.PIPE
    with started("replay", "-", "--json", cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in events():
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            for expected in wire(topology.feed("events", [line])).splitlines(keepends=True):
                assert process.stdout.readline() == expected
        process.stdin.close()


def story_with_an_order() -> Story:
    """A tool is escalated, an operator resets it, and it fails again; a day later it is marked."""
    story = Story(session="ordered").fails("deploy", times=3)
    story.command("trust.reset", "deploy")
    story.fails("deploy", times=3).after(minutes=24 * 60)
    story.quality_command("quality.mark", "deploy", scenario="deploy a shop")
    return story.works("deploy", times=2)


def test_commands_among_the_events_take_effect_where_they_stand(tmp_path: Path) -> None:
    """A file may hold both, in the order in which they came."""
    story = story_with_an_order()
    (tmp_path / "all.ndjson").write_bytes(b"\n".join(value for _, value in story.records))
    done = trustfold("replay", "all.ndjson", "--json", "--topics", "all", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == wire(story.outputs, topics=TOPICS)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    moves = [(one["from"], one["to"]) for one in found if one["type"] == "trust.changed"]
    assert moves[:3] == [("trusted", "escalated"), ("escalated", "trusted"), ("trusted", "escalated")]
    assert any(one["type"] == "state.updated" and one["kind"] == "quality" for one in found)
    assert not [one for one in found if one["type"] == "dead_letter"]


def test_one_event_from_2099_moves_nobody_elses_clock(tmp_path: Path) -> None:
    """Escalations and circuits of others hold as long as without it, and nothing is overdue for its sake."""
    story = Story(session="s1").fails("deploy", times=4).fails("search", http_status=503, times=6)
    open_call = story.started("deploy")
    lines = [value for _, value in story.records]
    odd = json.loads(lines[-1]) | {"id": "odd", "session_id": "s2", "time": "2099-01-01T00:00:00Z", "call_id": "odd"}
    story.after(minutes=1).finished(open_call, "deploy")
    last = [value for _, value in story.after(minutes=20).works("search", times=2).records][len(lines) :]
    for before, behind in ((lines, last), ([], lines + last), (lines + last, [])):
        (tmp_path / "odd.ndjson").write_bytes(b"\n".join([*before, json.dumps(odd).encode(), *behind]))
        done = trustfold("replay", "odd.ndjson", "--json", cwd=tmp_path)
        others = [line for line in done.stdout.splitlines(keepends=True) if b'"session_id":"s2"' not in line]
        assert b"".join(others) == wire(story.outputs), len(before)


def test_a_recorded_file_with_commands_folds_again_to_the_same(tmp_path: Path) -> None:
    """What-if compares with what was decided, orders and wrong clocks included."""
    lines = [value for _, value in story_with_an_order().records]
    odd = json.loads(lines[0]) | {"id": "odd", "session_id": "s2", "time": "2099-01-01T00:00:00Z", "call_id": "odd"}
    lines.insert(3, json.dumps(odd).encode())
    (tmp_path / "all.ndjson").write_bytes(b"\n".join(lines))
    assert trustfold("record", "all.ndjson", cwd=tmp_path).returncode == 0
    with connect(tmp_path / ".trustfold/history", threads=2) as connection, lined_up(connection) as inputs:
        again = list(RulesReplay(Rules()).run(inputs))
    assert wire(again) == trustfold("replay", "all.ndjson", "--json", cwd=tmp_path).stdout
    assert wire(again)


def checks_of(story: Story, tmp_path: Path, *more: str) -> tuple[list[dict[str, Any]], str]:
    """Everything that `replay --checks --json` prints for a story, and its summary."""
    lines = [value for _, value in story.records]
    done = trustfold("replay", "-", "--json", "--checks", *more, cwd=tmp_path, stdin=b"\n".join(lines))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


def verdicts(lines: list[dict[str, Any]]) -> list[str]:
    """Decisions of the checks, in order."""
    return [line["decision"] for line in lines if line["type"] == "check"]


def test_checks_say_what_a_guard_would_have_done_in_its_place(tmp_path: Path) -> None:
    """Three failures are let through; from the escalation on each call is asked about, with the key and the reason."""
    story = Story().fails("search", with_="permission", times=4)
    lines, said = checks_of(story, tmp_path)
    assert verdicts(lines) == ["allow", "allow", "allow", "ask"]
    kinds = [line["type"] for line in lines]
    assert kinds.index("trust.changed") == 3, "after the third check, before the fourth"
    assert lines[0] == {
        "type": "check",
        "session_id": "s1",
        "call_id": "c1",
        "tool_name": "search",
        "decision": "allow",
        "key": "search",
        "reason": "",
        "time": "2026-01-05T10:00:02.000Z",
    }
    asked = next(line for line in lines if line.get("decision") == "ask")
    assert asked["key"] == "search"
    assert asked["reason"].startswith("tool 'search' is escalated - 3/3 failures in 1h")
    assert "checks: 4 calls, 1 asked (25.00 %), 0 refused, 0 circuit open" in said


def test_checks_refuse_what_is_blocked_and_follow_circuits_by_the_events_clock(tmp_path: Path) -> None:
    """Five resets open the circuit; half a minute later it is half-open, and the call goes through as its probe.

    A dangerous command asks before it ever ran, and is refused after it failed.
    """
    story = Story().fails("search", with_="transient", times=5).works("search").after(seconds=40).works("search")
    story.fails("bash", {"command": "rm -rf /"}, with_="").works("bash", {"command": "rm -rf /"})
    lines, said = checks_of(story, tmp_path)
    assert verdicts(lines) == [*["allow"] * 5, "circuit_open", "allow", "ask", "deny"]
    held = [line for line in lines if line["type"] == "check" and line["decision"] == "circuit_open"]
    assert held[0]["key"] == "tool:search"
    assert "1 refused, 1 circuit open" in said


def test_a_check_of_private_arguments_goes_by_the_failure_key_and_the_service(tmp_path: Path) -> None:
    """The key that the publisher gives is the one that is asked about; a user's and a session's workspace count."""
    story = Story(workspace="w1")
    private = {"args": None, "args_digest": "d", "failure_key": "bash|command=deploy"}
    for _ in range(4):
        call = story.started("bash", **private)
        story.finished(call, "bash", status="error", error={"message": "denied", "severity": "permission"})
    story.works("bash", {"command": "ls"}, service="shells")
    lines, _ = checks_of(story, tmp_path)
    asked = [line["key"] for line in lines if line["type"] == "check" and line["decision"] == "ask"]
    assert asked[:1] == ["bash|command=deploy"]


def test_a_start_that_comes_twice_is_checked_once_and_a_bad_one_never(tmp_path: Path) -> None:
    """What the fold does not take for a new call is none."""
    story = Story().works("search")
    story.records.insert(1, story.records[0])
    story.records.append(("events", b'{"type":"tool_call.started"}'))
    lines, _ = checks_of(story, tmp_path)
    assert verdicts(lines) == ["allow"]


def test_what_falls_due_before_a_call_is_applied_before_its_check(tmp_path: Path) -> None:
    """Deadlines that pass in one session count before the next call of another."""
    story = Story()
    for number in range(3):
        story.started("search", {"q": number}, deadline_ms=1000)
    story.after(minutes=1).moved(session="s2").works("search", {"q": 9})
    lines, _ = checks_of(story, tmp_path)
    assert verdicts(lines)[-1] == "ask"


def test_one_event_from_the_future_moves_no_clock_of_others(tmp_path: Path) -> None:
    """A session that is decades ahead lets no deadline of another session pass before its time."""
    story = Story()
    calls = [story.started("search", {"q": number}, deadline_ms=60_000) for number in range(3)]
    story.session = "s2"
    story.event("tool_call.started", call_id="x", tool_name="translate", args={}, time="2099-01-01T00:00:00Z")
    story.session = "s1"
    for call in calls:
        story.finished(call, "search")
    story.works("search")
    lines, _ = checks_of(story, tmp_path)
    assert verdicts(lines) == ["allow"] * 5


@pytest.mark.parametrize("name", sorted(ALL))
def test_checks_change_no_decision(name: str, tmp_path: Path) -> None:
    """The decisions between the checks are those that are made without them."""
    lines = [value for _, value in ALL[name]().records]
    done = trustfold("replay", "-", "--json", "--checks", cwd=tmp_path, stdin=b"\n".join(lines))
    decisions = [line for line in done.stdout.splitlines() if not line.startswith(b'{"type":"check"')]
    assert sorted(decisions) == sorted(wire(folded(lines)).splitlines())


def test_people_see_a_row_for_each_call_that_would_not_simply_be_made(tmp_path: Path) -> None:
    """Without --json allowed calls are only counted."""
    story = Story().fails("search", with_="permission", times=4)
    done = trustfold("replay", "-", "--checks", cwd=tmp_path, stdin=b"\n".join(value for _, value in story.records))
    shown = done.stdout.decode()
    assert shown.count("search would ask: tool 'search' is escalated") == 1
    assert "allow" not in shown
    assert "checks: 4 calls, 1 asked" in done.stderr.decode()

"""The measures of `make quality` on a made-up trace, where every figure is known beforehand."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import quality_checks as checks
import quality_examples as examples
import quality_outages as outages
import quality_plants as plants
from quality_outages import Back, Outage
from quality_plants import Plant, Scope, Trace
from quality_sessions import Source
from story import Story
from trustfold.rules.rules import Rules


def source_of(story: Story, folder: Path, name: str = "toy") -> Source:
    """A file of recorded sessions that holds the story."""
    file = folder / f"{name}.ndjson.gz"
    file.write_bytes(gzip.compress(b"".join(value + b"\n" for _, value in story.records)))
    return Source(name, file)


def trace_of(story: Story, folder: Path) -> Trace:
    """The story, ready for planting."""
    return plants.load(source_of(story, folder))


def a_day(rounds: int = 120) -> Story:
    """Two tools that take turns, a minute a round, and always work."""
    story = Story()
    for _ in range(rounds):
        story.works("search").works("translate").after(seconds=52)
    return story


def planted(trace: Trace, kind: str, target: str, *, calls: int = 8, skip: int = 5) -> Outage:
    """What is measured of an outage of one key, from its call number `skip` on."""
    lines = [line for line, start in trace.starts.items() if start.key == target][skip : skip + calls]
    return outages.measure_plant(trace, Plant(trace.name, kind, Scope.KEY, target, frozenset(), tuple(lines)), Rules())


def test_an_outage_that_trust_counts_is_caught_after_three_calls_and_hits_nobody_else(tmp_path: Path) -> None:
    """Three 503s in a row escalate the key; the person approves the rest, which fail; the other tool never asks."""
    outage = planted(trace_of(a_day(), tmp_path), "503", "search", calls=4)
    assert (outage.calls, outage.trust_calls, outage.worst_key) == (3, 3, 3)
    assert outage.in_time
    assert (outage.failing, outage.refused, outage.circuit_calls) == (4, 0, None)
    assert (outage.hit, outage.held_before) == (0, False)


def test_the_way_back_is_measured_from_the_configured_times(tmp_path: Path) -> None:
    """Half an hour after the escalation three successes restore trust, and the next call is simply made."""
    trace = trace_of(a_day(), tmp_path)
    outage = planted(trace, "503", "search", calls=4)
    assert outage.back is Back.BACK
    assert outage.extra_successes == 0
    assert outage.back_after_s == 178, "successes after 0, 1 and 2 minutes; the next call starts 58 seconds later"


def test_what_the_default_filter_leaves_out_is_caught_by_the_circuit_alone(tmp_path: Path) -> None:
    """Resets within two minutes open the circuit after the fifth; what it refuses is not made, so it does not fail."""
    story = Story().works("search", times=30).works("translate", times=5)
    outage = planted(trace_of(story, tmp_path), "reset", "search", calls=8)
    assert (outage.trust_calls, outage.circuit_calls, outage.calls) == (None, 5, 5)
    assert outage.in_time
    assert (outage.failing, outage.refused) == (5, 3)


def test_calls_that_would_be_held_without_the_outage_are_not_counted_as_hit(tmp_path: Path) -> None:
    """The other tool is broken anyway: the guard asks about it with and without the outage."""
    story = Story()
    for number in range(60):
        story.works("search")
        if number < 6:
            story.fails("translate", with_="permission")
        else:
            story.works("translate")
    outage = planted(trace_of(story, tmp_path), "503", "search", calls=6, skip=20)
    assert outage.hit == 0
    assert outage.others > 0
    counted = checks.measure(source_of(story, tmp_path), Rules())
    assert set(counted.keys) == {"translate"}


def test_calls_that_are_held_because_of_the_outage_are_counted_with_what_held_them(tmp_path: Path) -> None:
    """Both tools are of one server: when one fails often enough the server is held, and with it the other tool."""
    story = Story()
    for _ in range(30):
        story.works("mcp__wiki__search").works("mcp__wiki__edit")
    outage = planted(trace_of(story, tmp_path), "timeout", "mcp__wiki__search|mcp_server=wiki", calls=4)
    assert outage.hit > 0
    assert sum(outage.hit_keys.values()) == outage.hit
    assert "service:wiki" in outage.hit_keys


def test_a_key_that_stays_held_after_more_successes_than_needed_is_stuck() -> None:
    """Ready at 100 with three successes needed: held after the fifth is stuck, after the third nothing was seen."""
    found = {}
    for successes in (3, 5):
        key = outages._Key(held=True, ready=100, needed=3, successes=[50, *range(100, 100 + successes)])
        outages._conclude(outage := Outage("toy", "503", Scope.KEY, "search"), {"search": key})
        found[successes] = outage.back
    assert found == {3: Back.UNSEEN, 5: Back.STUCK}


def test_what_was_held_before_the_outage_says_nothing_about_when_it_is_caught(tmp_path: Path) -> None:
    """A key that is escalated already is marked."""
    story = Story().fails("search", with_="permission", times=4).works("search", times=12)
    assert planted(trace_of(story, tmp_path), "503", "search", calls=6).held_before


def test_an_outage_of_a_tool_or_service_fails_all_of_its_keys(tmp_path: Path) -> None:
    """Chosen plants: three keys of the tool among the first calls, two tools under the service, each the same twice."""
    story = Story()
    for number in range(40):
        story.works("Read", {"file_path": f"/src/{number % 5}/a.py"}).works("Grep", {"pattern": "x"})
    trace = trace_of(story, tmp_path)
    tool = plants.plant(trace, "503", Scope.TOOL, "0")
    assert tool is not None
    assert tool == plants.plant(trace, "503", Scope.TOOL, "0")
    assert {trace.starts[line].tool for line in tool.calls} == {"Read"}
    assert len({trace.starts[line].key for line in tool.calls}) >= 3
    service = plants.plant(trace, "503", Scope.SERVICE, "0")
    assert service is not None
    assert service.tools == {"Read", "Grep"}
    outage = outages.measure_plant(trace, service, Rules())
    assert outage.in_time
    assert outage.others == 0, "both tools are in it"


def test_a_source_without_room_has_no_outage(tmp_path: Path) -> None:
    """Five calls are too few to say anything."""
    trace = trace_of(Story().works("search", times=5), tmp_path)
    assert [plants.plant(trace, "503", scope, "0") for scope in Scope] == [None, None, None]


def test_checks_are_counted_by_what_a_guard_would_have_done(tmp_path: Path) -> None:
    """Four failures: the fourth call is asked about, and so is each later one."""
    story = Story().works("translate", times=3).fails("search", with_="permission", times=4).works("search")
    source = source_of(story, tmp_path)
    counted = checks.measure(source, Rules())
    assert counted.as_json() == {
        "calls": 8,
        "asked": 2,
        "refused": 0,
        "circuit_open": 0,
        "share_interrupted": 0.25,
        "sessions_interrupted": 1,
        "keys": {"search": 2},
    }
    first, second = sorted(checks.sample([counted], 5), key=lambda one: one.line)
    assert (first.check.call_id, second.check.call_id) == ("c7", "c8")
    shown = examples.behind(source, first.causes, first.line)
    assert [line.split(": ")[-1] for line in shown if "->" in line] == ["it broke"] * 3
    assert shown[-1] == "  held: search {}"


@pytest.mark.parametrize("form", ["--json", "--markdown"])
def test_the_report_of_a_run(form: str, tmp_path: Path) -> None:
    """The program measures a folder and reports checks and outages as JSON, or as tables for the page."""
    source_of(a_day(), tmp_path)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent), "--only", "checks", "--only", "outages", "--plants", "1", form],
        env=os.environ | {"TRUSTFOLD_TRACES": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if form == "--markdown":
        assert "| toy | 240 | 0 | 0 | 0 | 0.00% |  |" in done.stdout
        assert "| 503 | key | 1 | 1 of 1 |" in done.stdout
        return
    report = json.loads(done.stdout)["shipped"]
    assert report["checks"]["toy"]["calls"] == 240
    assert {outage["scope"] for outage in report["outages"]} == {"key", "service"}, "the tools have one key each"
    assert report["outages_in_all"]["planted"] == len(report["outages"]) == 2 * len(plants.KINDS)

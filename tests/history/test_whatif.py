"""Other rules over the recorded past: the same rules change nothing, others what two replays say they change."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from fixed_rules import Rules
from recorded import ARRIVED, TRACE_NAMES, lines_of, record, replayed, told
from refolded import compared, lenient, nervous, watchful
from story import Story
from trustfold.history.recorder import PartitionRecorder
from trustfold.history.whatif import decisions
from trustfold.history.whatif.decisions import DecisionDifferences, OutputComparison, what_of
from trustfold.recording.store_recorder import StoreRecording
from trustfold.streams.embedded.engine import EmbeddedEngine, SubmitRequest

NAMES = frozenset({"id", "caused_by", "pattern_id", "nudge_id", "fingerprint"})
"""Fields that name events, outputs and results."""

SUBJECTS = ("key", "breaker_key", "call_id", "pattern", "failure_key", "guarantee")
"""Fields that say what a decision is about."""

MOST = 4_000
"""Events of a recorded run that are folded here, three and seven times over."""

DECISIONS = frozenset({"escalations", "breakers", "nudges", "suggestions"})


def difference(root: Path, other: Rules, **options: Any) -> tuple[DecisionDifferences, int, int]:
    """What other rules would have decided; how many recorded decisions were decided again, and how many there are."""
    told = compared(root, other, **options)
    return told.difference, told.recorded.again, told.recorded.count


def replays(records: list[tuple[str, bytes]], rules: Rules) -> dict[tuple[Any, ...], tuple[str, bytes]]:
    """Decisions of a full replay: what and how, by type, time, place, subject and how many there were before."""
    found: dict[tuple[Any, ...], tuple[str, bytes]] = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    for output in replayed(records, rules):
        if output.topic in DECISIONS and output.value is not None:
            body = orjson.loads(output.value)
            about = [body.get(name) for name in SUBJECTS]
            place = (output.type, body["time"], output.key, *about)
            said = {name: value for name, value in body.items() if name not in NAMES}
            found[*place, seen[place]] = (what_of(output), orjson.dumps(said))
            seen[place] += 1
    return found


def by_hand(records: list[tuple[str, bytes]], other: Rules) -> dict[str, Counter[str]]:
    """Counts of what two replays do not have in common."""
    before, after = replays(records, Rules()), replays(records, other)
    return {
        "added": Counter(what for place, (what, _) in after.items() if place not in before),
        "gone": Counter(what for place, (what, _) in before.items() if place not in after),
        "changed": Counter(
            what for place, (what, said) in after.items() if place in before and before[place][1] != said
        ),
    }


def counted(found: DecisionDifferences) -> dict[str, Counter[str]]:
    """The same counts as the difference has them."""
    return {
        how: Counter({what: number for what, kind in found.kinds.items() if (number := getattr(kind, how))})
        for how in ("added", "gone", "changed")
    }


OTHERS = {"intercode": lenient, "tau_airline_gpt4o": nervous, "cipherbox_claude_code": watchful}
"""Other rules for some recorded runs, under which something is decided that was not, or the reverse."""


@pytest.mark.slow
@pytest.mark.parametrize("trace", TRACE_NAMES)
def test_what_other_rules_decide_is_the_difference_of_two_replays(trace: str, tmp_path: Path) -> None:
    """The same rules decide every recorded decision again; others as counted from the events, folded under each."""
    records = [("events", line) for line in lines_of(trace)[:MOST]]
    record(tmp_path, records)
    found, again, recorded = difference(tmp_path, Rules())
    assert found.empty
    assert not found.added
    assert again == recorded
    if trace in OTHERS:
        expected = by_hand(records, OTHERS[trace]())
        assert sum(expected["added"].values()) + sum(expected["gone"].values()) > 0
        assert counted(difference(tmp_path, OTHERS[trace]())[0]) == expected


def test_examples_say_when_where_and_why(tmp_path: Path) -> None:
    """What would have been spared is named with its event."""
    story = Story()
    story.fails("deploy", times=3)
    told(tmp_path, story)
    found, _, _ = difference(tmp_path, lenient())
    spared = next(example for example in found.gone if example.what == "trust escalated")
    assert (spared.session, spared.subject) == ("s1", "deploy")
    assert "3/3 failures" in spared.reason
    assert spared.caused_by == orjson.loads(story.records[-1][1])["id"]


def test_commands_are_folded_again_where_they_stood(tmp_path: Path) -> None:
    """A reset between the failures keeps trust under the same rules, as it did."""
    story = Story()
    story.fails("deploy", times=2)
    story.command("trust.reset", "deploy")
    story.fails("deploy", times=2)
    told(tmp_path, story, arrived_ms=ARRIVED)
    found, again, recorded = difference(tmp_path, Rules())
    assert (found.empty, again) == (True, recorded)
    assert "trust escalated" not in found.kinds


def test_since_compares_only_what_was_decided_later(tmp_path: Path) -> None:
    """What lies before is folded for its states and not counted."""
    story = Story()
    story.fails("deploy", times=3)
    story.after(minutes=120)
    later = story.now
    story.fails("search", times=3)
    told(tmp_path, story)
    found, _, recorded = difference(tmp_path, lenient(), since=later)
    assert {example.subject for example in found.gone} == {"search"}
    assert 0 < recorded < len(replays(story.records, Rules()))


def test_deadlines_of_other_rules_are_told_by_the_arrival_of_records(tmp_path: Path) -> None:
    """A call is overdue earlier under rules that say so: found by the times at which records arrived."""
    story = Story()
    story.started("sleepy")
    story.after(minutes=11)
    story.works("other")
    told(tmp_path, story, arrived_ms=ARRIVED)
    rules = msgspec.structs.replace(Rules(), calls=msgspec.structs.replace(Rules().calls, overdue_after_ms=30_000))
    kinds = difference(tmp_path, rules)[0].kinds
    added = {kind for kind, counts in kinds.items() if counts.added}
    assert added == {"pattern stalled_call", "pattern cleared"}


def test_what_waits_for_a_counterpart_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is settled; what is counted stays the same, and examples are no more than asked for."""
    monkeypatch.setattr(decisions, "OPEN", 3)
    story = Story()
    story.fails("deploy", times=40)
    found = OutputComparison(examples=2)
    outputs = list(replayed(story.records))
    for output in outputs:
        found.take([output], [])
    told = found.finish()
    decided = [output for output in outputs if output.topic in DECISIONS and output.value is not None]
    assert sum(kind.gone for kind in told.kinds.values()) == len(decided) > 10
    assert max(Counter(example.what for example in told.gone).values()) == 2


def test_settings_are_folded_again_where_they_stood(tmp_path: Path) -> None:
    """A workspace that raised its threshold, and a day later no longer: the same rules decide the same."""
    story = Story()
    scope = {"scope": "workspace:w1", "workspace_id": None}
    overrides = {"rules": {"trust": {"default_rule": {"count_threshold": 9}}}}
    story.event("settings.changed", topic="settings", overrides=overrides, **scope)
    story.fails("deploy", times=4)
    story.event("settings.changed", topic="settings", overrides={}, **scope)
    story.after(minutes=120)
    story.fails("search", times=3)
    with EmbeddedEngine.open(tmp_path / "store.sqlite", Rules()) as engine:
        for topic, value in story.records:
            engine.submit([SubmitRequest(topic, [value])], arrived_ms=ARRIVED)
    recorder = PartitionRecorder(tmp_path / "history")
    copying = StoreRecording(recorder, tmp_path / "store.sqlite")
    copying.run(threading.Event(), once=True)
    copying.close()
    recorder.close()
    found, again, recorded = difference(tmp_path / "history", Rules())
    assert (found.empty, again) == (True, recorded)
    spared = {example.subject for example in difference(tmp_path / "history", lenient())[0].gone}
    assert "search" in spared
    assert "deploy" not in spared, "nothing was escalated while the threshold was nine"

"""A search for thresholds: what is tried, what it is judged by, what is chosen, and what that costs."""

from __future__ import annotations

import os
import subprocess
import sys
from math import sqrt
from pathlib import Path
from statistics import median

import msgspec
import orjson
import pytest
from fixed_rules import Rules
from hypothesis import given
from hypothesis import strategies as st
from recorded import record, told
from refolded import compared, lenient, searched
from story import Story
from trustfold.cli.render import ExitCode
from trustfold.cli.whatif_view import choice_in_words, search_as_json
from trustfold.config import load_rules
from trustfold.errors import ConfigError
from trustfold.history.filters import Filters
from trustfold.history.whatif import grid as trying
from trustfold.history.whatif.choice import (
    LEAST,
    Trial,
    Weights,
    best,
    change,
    choose,
    paired_95,
    recommended,
    split,
    weights,
)
from trustfold.history.whatif.grid import Alarm, alarm_of, combinations, patterns_of
from trustfold.history.whatif.labels import CALLS, LABELS, VERDICTS, Truth, labelled, truth_from
from trustfold.history.whatif.rules_file import _changed, toml_of
from trustfold.history.whatif.search import Found, Judged, Wanted
from trustfold.rules.rules import Ladder
from two_days import two_days

MINOR = "behaviour.repetitive_calls.minor"
COUNT = "trust.default_rule.count_threshold"


def loops(*lengths: int) -> Story:
    """Sessions that repeat one call so often each: `loop-0`, `loop-1`, in their order."""
    story = Story()
    for number, times in enumerate(lengths):
        story.moved(session=f"loop-{number}").works("compute", {"q": number}, result="nothing", times=times)
    return story


def patient() -> Rules:
    """Seven equal calls are a loop."""
    ladder = Ladder(minor=7, moderate=8, severe=9)
    return msgspec.structs.replace(
        Rules(), behaviour=msgspec.structs.replace(Rules().behaviour, repetitive_calls=ladder)
    )


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of 28 healthy sessions, two calls each, and 32 stuck ones with loops of 6 to 9."""
    root = tmp_path_factory.mktemp("mixed")
    told(root, loops(*[2] * 28, *[6 + number % 4 for number in range(32)]))
    return root


def test_a_grid_shows_what_thresholds_catch_and_cost(tmp_path: Path) -> None:
    """A low threshold alarms in a session that only asked twice; a high one misses the loop of seven."""
    told(tmp_path, loops(1, 2, 7))
    found = searched(tmp_path, f"{MINOR}=2,3,9", hold_out=0.0)
    truth = found.judged.truth
    assert (truth.healthy, truth.stuck) == (frozenset({"loop-0", "loop-1"}), frozenset({"loop-2"}))
    shown = [(one.values[MINOR], one.score(truth).alarmed, one.score(truth).caught) for one in found.trials]
    assert shown == [(2, 1, 1), (3, 0, 1), (9, 0, 0)]
    assert [one.caught.get("loop-2") for one in found.trials] == [2, 3, None], "at which call"
    assert best(found.trials, truth) == [found.trials[1]] == [recommended(found.trials, truth, weights(truth), least=1)]
    assert [one.in_force for one in found.trials] == [False, True, False]
    assert found.chosen is None, "three sessions are too few to choose by"


def test_the_rules_in_force_are_always_tried(mixed: Path) -> None:
    """Whatever the grid names: without them a choice has no price."""
    found = searched(mixed, f"{MINOR}=3", present=patient())
    assert [(dict(one.values), one.in_force) for one in found.trials] == [({MINOR: 3}, False), ({MINOR: 7}, True)]
    assert searched(mixed, f"{COUNT}=3").trials[0].in_force, "an unset threshold holds as the shipped one"


def test_the_choice_has_a_price_counted_again_in_plain_python(mixed: Path) -> None:
    """Nothing is better than 3 here, which 7 loses half of the loops to; 2 alarms everywhere."""
    found = searched(mixed, f"{MINOR}=2,3,8", present=patient(), seed=7)
    assert found.chosen == 1
    for truth, price in ((found.parts.by, found.choice.price_by), (found.parts.held_out, found.choice.price)):
        lengths = [6 + (int(name.removeprefix("loop-")) - 28) % 4 for name in truth.stuck]
        caught = sum(length >= 7 for length in lengths)
        assert price is not None
        assert (price.before.caught, price.after.caught, price.after.stuck) == (caught, len(lengths), len(lengths))
        assert (price.before.alarmed, price.after.alarmed) == (0, 0)
        assert price.calls_later == median([3 - 7] * caught)
        assert price.recall == pytest.approx(1 - caught / len(lengths))
        assert price.cost == pytest.approx(-found.weigh.miss * (len(lengths) - caught))
    assert len(found.parts.held_out.stuck) == round(0.3 * 32)
    assert found.parts.by.healthy | found.parts.held_out.healthy == found.judged.truth.healthy


def test_the_written_choice_decides_as_the_trial_did(mixed: Path, tmp_path: Path) -> None:
    """The file loads to the rules that were tried, comments and all, and folds to the same decisions."""
    base = msgspec.structs.replace(patient(), trust=lenient().trust)
    found = searched(mixed, f"{MINOR}=3,4", present=base)
    assert found.chosen is not None
    file = tmp_path / "chosen.toml"
    file.write_text(toml_of(found, ["From a test\n[trap]\nx = 1"]))
    assert load_rules(file) == found.rules[found.chosen] != base
    again = compared(mixed, load_rules(file), present=found.rules[found.chosen])
    assert again.difference.empty
    assert not again.shifts
    text = file.read_text()
    assert f"# Chosen: {MINOR} = 3" in text
    assert "held out" in text
    assert "95 %" in text


def troubled() -> Story:
    """Sessions whose deploy breaks twice, and between them sessions in which nothing does."""
    story = Story()
    for number in range(12):
        story.moved(session=f"bad-{number}").fails("deploy", {"n": number}, times=2)
        story.moved(session=f"good-{number}").works("search", {"n": number}, times=2)
        story.after(minutes=12 * 60)
    return story


def test_rules_of_trust_are_judged_by_the_calls_that_are_asked_about(tmp_path: Path) -> None:
    """One failure is enough to ask about the second call of each bad session; three never come together."""
    told(tmp_path, troubled())
    found = searched(tmp_path, f"{COUNT}=1,2", hold_out=0.0)
    truth = found.judged.truth
    assert (len(truth.healthy), len(truth.stuck)) == (12, 12)
    assert set(truth.sources.values()) == {CALLS}
    scores = {one.values[COUNT]: one.score(truth) for one in found.trials}
    asked = {one.values[COUNT]: (one.alarms, one.for_nothing) for one in found.trials}
    alone = {threshold: asks_by_hand(threshold) for threshold in (1, 2, 3)}
    assert asked == {threshold: (len(broke), 0) for threshold, broke in alone.items()}
    assert {threshold: score.caught for threshold, score in scores.items()} == {
        threshold: len(set(broke)) for threshold, broke in alone.items()
    }
    assert not any(score.alarmed for score in scores.values())
    assert scores[1].caught > scores[3].caught


def asks_by_hand(threshold: int) -> list[str]:
    """Sessions of the calls of `troubled` that a guard would have asked about, by a fold of its own."""
    from trustfold.cli.checks import Checker, Verdict, check_of
    from trustfold.projections.local_topology import LocalTopology
    from trustfold.rules.rules import EscalationPatch

    rules = Rules()
    trust = msgspec.structs.replace(rules.trust, default_rule=EscalationPatch(count_threshold=threshold))
    checker = Checker(LocalTopology(msgspec.structs.replace(rules, trust=trust)))
    outputs = [output for topic, value in troubled().records for output in checker.feed(topic, (value,))]
    checks = [check_of(output) for output in outputs if output.type == "check"]
    return [check.session_id for check in checks if check.decision is not Verdict.ALLOW]


def test_several_processes_find_the_same(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the grid, whoever was first."""
    alone = searched(mixed, f"{COUNT}=1,2")
    monkeypatch.setattr(trying, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert searched(mixed, f"{COUNT}=1,2").trials == alone.trials


def test_what_operators_called_false_is_healthy(tmp_path: Path) -> None:
    """Their word goes before the number of failures; a loop of six stays one."""
    story = Story()
    story.fails("deploy", times=4)
    (escalated,) = [one["id"] for one in story.all("trust.changed", to="escalated")]
    story.event("feedback.false_alarm", output_id=escalated)
    story.moved(session="s2").works("compute", {"q": 1}, result="nothing", times=7)
    pattern = story.all("pattern.detected", session_id="s2")[0]["id"]
    story.event("feedback.false_alarm", output_id=pattern)
    told(tmp_path, story)
    of_calls = searched(tmp_path, f"{COUNT}=3").judged.truth
    assert ("s1" in of_calls.healthy, of_calls.sources["s1"]) == (True, VERDICTS)
    assert "s2" in searched(tmp_path, f"{MINOR}=3").judged.truth.stuck


def test_filters_hold_in_a_search(mixed: Path) -> None:
    """Only sessions that pass are judged, and only their alarms count."""
    found = searched(mixed, f"{MINOR}=3", filters=Filters(sessions=("loop-0", "loop-40", "loop-41")))
    assert (found.judged.truth.healthy, found.judged.truth.stuck) == ({"loop-0"}, {"loop-40", "loop-41"})
    assert found.trials[0].alarms == 6


def test_sessions_that_began_before_since_are_not_judged(tmp_path: Path) -> None:
    """They are folded, and their alarms of later count, but what they were like cannot be said of a part."""
    story = Story(session="early").works("compute", {"q": "x"}, times=7)
    story.after(minutes=60 * 24)
    since = story.now
    story.works("compute", {"q": "y"}, times=7)
    story.moved(session="late").works("read_file", {"path": "/a"})
    told(tmp_path, story)
    found = searched(tmp_path, f"{MINOR}=3", filters=Filters(since=since))
    assert found.judged.truth.healthy == {"late"}
    assert not found.judged.truth.stuck
    assert found.trials[0].alarms == 3, "minor, moderate and severe of what came later"


def test_a_grid_that_does_not_fit_is_refused() -> None:
    """An unknown rule, a value out of range, too many combinations, what cannot be measured or not together."""
    for grid, words in (
        (("behaviour.repetitiv.minor=2",), "there is no such rule"),
        ((f"{COUNT}=0",), COUNT),
        ((f"{MINOR}=x",), "give it as PATH=V1,V2"),
        ((f"{MINOR}=",), "give it as PATH=V1,V2"),
        (("trust.max_fine_keys=" + ",".join(map(str, range(1, 90))),), "at most 64"),
        ((f"{MINOR}=3", f"{MINOR}=5"), "is there twice"),
    ):
        with pytest.raises(ConfigError, match=words):
            combinations(grid, Rules())
    with pytest.raises(ConfigError, match="one after the other"):
        alarm_of((f"{MINOR}=2", f"{COUNT}=2"))
    with pytest.raises(ConfigError, match="nothing here measures"):
        alarm_of(("quality.enabled=false",))


def test_only_the_detectors_tried_alarm() -> None:
    """What others say of every session would hide what a threshold does."""
    assert patterns_of(("behaviour.repetitive_calls_with_news.minor=9", "behaviour.text_loop.minor=4")) == {
        "repetitive_calls",
        "text_loop",
    }
    assert patterns_of(("behaviour.window_steps=20", "behaviour.text_loop.minor=4")) == frozenset()
    assert alarm_of(("breakers.tool.consecutive_failures=3", f"{COUNT}=2")) is Alarm.CALL


def test_a_grid_reaches_tables_of_free_keys_and_moves_ladders_as_a_whole() -> None:
    """A threshold of one tool is as good as any; the steps of a ladder keep their distance."""
    path = "trust.tool_rules.bash.count_threshold"
    assert [values[path] for values, _ in combinations((f"{path}=3,5,3",), Rules())] == [3, 5]
    ((_, rules),) = combinations((f"{MINOR}=7",), Rules())
    assert rules.behaviour.repetitive_calls == Ladder(minor=7, moderate=8, severe=10)


def test_labels_of_people_count(tmp_path: Path) -> None:
    """Sessions labelled both ways are stuck; other labels count for neither."""
    file = tmp_path / "labels.ndjson"
    lines = [("a", "healthy"), ("b", "stuck"), ("b", "healthy"), ("c", "who knows")]
    file.write_bytes(b"\n".join(orjson.dumps({"session_id": s, "label": word}) for s, word in lines))
    assert labelled(file) == Truth(frozenset({"a"}), frozenset({"b"}), {"a": LABELS, "b": LABELS})
    file.write_text("nonsense")
    with pytest.raises(ConfigError, match="session_id"):
        labelled(file)


SESSIONS = [f"h{number}" for number in range(12)] + [f"s{number}" for number in range(12)]
TRUTH = truth_from(SESSIONS[:12], SESSIONS[12:], CALLS)
ALARMS = st.sets(st.sampled_from(SESSIONS))


def trial(alarms: set[str], *, in_force: bool = False) -> Trial:
    """A combination with alarms at the third call of these sessions."""
    at = dict.fromkeys(sorted(alarms), 3)
    return Trial(
        {},
        in_force,
        len(at),
        {s: c for s, c in at.items() if s[0] == "h"},
        {s: c for s, c in at.items() if s[0] == "s"},
    )


@given(st.lists(ALARMS, min_size=1, max_size=6), st.floats(0, 9), st.floats(0.1, 9))
def test_the_choice_costs_least_and_is_never_beaten_in_both(every: list[set[str]], alarm: float, miss: float) -> None:
    """By the weights that were given; none for nothing instead of the rules in force."""
    tried = [trial(alarms, in_force=number == 0) for number, alarms in enumerate(every)]
    chosen = recommended(tried, TRUTH, Weights(alarm, miss))
    assert chosen is not None
    costs = [alarm * len(one.alarmed) + miss * (12 - len(one.caught)) for one in tried]
    assert alarm * len(chosen.alarmed) + miss * (12 - len(chosen.caught)) == min(costs)
    assert chosen.in_force or costs[0] > min(costs)
    if alarm:
        assert any(one.score(TRUTH)[:4] == chosen.score(TRUTH)[:4] for one in best(tried, TRUTH))


@given(ALARMS, ALARMS)
def test_a_change_and_its_reverse_are_mirror_images(one: set[str], other: set[str]) -> None:
    """The interval holds the change, is no wider than everything, and turns round with it."""
    there = change(trial(one), trial(other), TRUTH, Weights(1, 2))
    back = change(trial(other), trial(one), TRUTH, Weights(1, 2))
    for name in ("false_alarms", "recall", "cost"):
        change_there, (low, high) = getattr(there, name), getattr(there, f"{name}_95")
        assert low - 1e-9 <= change_there <= high + 1e-9
        assert getattr(back, name) == pytest.approx(-change_there)
        assert getattr(back, f"{name}_95") == pytest.approx((-high, -low))
    assert {there.verdict, back.verdict} in ({"better", "worse"}, {"no change shown"})


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_the_interval_of_a_change_follows_its_formula(both: int, before: int, after: int, neither: int) -> None:
    """Newcombe's square-and-add interval with the correlation of paired shares, written out again."""
    count = both + before + after + neither
    low, high = paired_95(both, before, after, neither)
    if not count:
        assert (low, high) == (-1, 1)
        return

    def wilson(successes: int) -> tuple[float, float]:
        z2, p = 1.959963984540054**2, successes / count
        spread = sqrt(z2) * sqrt(p * (1 - p) / count + z2 / 4 / count**2)
        return (p + z2 / 2 / count - spread) / (1 + z2 / count), (p + z2 / 2 / count + spread) / (1 + z2 / count)

    (l1, u1), (l2, u2) = wilson(both + after), wilson(both + before)
    p1, p2 = (both + after) / count, (both + before) / count
    product = both * neither - before * after
    margins = (both + before) * (after + neither) * (both + after) * (before + neither)
    phi = 0.0
    if margins:
        phi = (max(0, product - count / 2) if product > 0 else product) / sqrt(margins)
    below = sqrt(max(0, (p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2))
    above = sqrt(max(0, (u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2))
    assert (low, high) == pytest.approx((max(-1, p1 - p2 - below), min(1, p1 - p2 + above)), abs=1e-9)


@given(st.sets(st.text(max_size=5)), st.sets(st.text(max_size=5)), st.floats(0, 0.9), st.integers())
def test_a_split_holds_out_a_share_of_each_kind_and_depends_on_nothing_else(
    healthy: set[str], stuck: set[str], share: float, seed: int
) -> None:
    """No session is in both parts or in none; the order in which they came does not matter."""
    truth = truth_from(healthy, stuck, CALLS)
    by, held = split(truth, share, seed)
    assert not by.healthy & held.healthy
    assert not by.stuck & held.stuck
    assert (by.healthy | held.healthy, by.stuck | held.stuck) == (truth.healthy, truth.stuck)
    assert (len(held.healthy), len(held.stuck)) == (round(len(truth.healthy) * share), round(len(truth.stuck) * share))
    assert split(truth_from(sorted(healthy, reverse=True), sorted(stuck), CALLS), share, seed) == (by, held)


def test_a_choice_that_sessions_held_out_refute_is_none() -> None:
    """Rules that caught every loop in the sessions they were chosen by, and only alarm in the others, get no star."""
    truth = truth_from((f"h{number}" for number in range(200)), (f"s{number}" for number in range(200)), LABELS)
    parts = split(truth, 0.3, seed=1)
    weigh = weights(parts.by)
    present = Trial({"x": 1}, True, 0, {}, dict.fromkeys(sorted(truth.stuck)[:100], 3))
    lucky = Trial({"x": 2}, False, 0, dict.fromkeys(parts.held_out.healthy, 2), dict.fromkeys(parts.by.stuck, 2))
    good = Trial({"x": 3}, False, 0, {}, dict.fromkeys(sorted(truth.stuck)[:150], 3))
    chosen = choose([present, lucky, good], parts, weigh)
    assert (chosen.trial, chosen.refuted, chosen.price) == (present, lucky, None)
    known = Judged(truth, 0)
    found = Found(Alarm.PATTERN, [present, lucky], [Rules(), Rules()], known, parts, weigh, chosen)
    assert "★ x=1: the rules in force; x=2 costs less" in choice_in_words(found)[0]
    assert search_as_json(found, Wanted(["x=1,2"]))["refuted"] == {"x": 2}
    chosen = choose([present, good], parts, weigh)
    assert (chosen.trial, chosen.refuted) == (good, None)
    assert chosen.price is not None
    assert chosen.price.verdict == "better"
    assert choose([good._replace(in_force=True), present._replace(in_force=False)], parts, weigh).price_by is None


def test_too_few_sessions_choose_nothing_and_show_nothing() -> None:
    """Nine of a kind are too few, for the choice and for its check."""
    few = truth_from(SESSIONS[:12], SESSIONS[12 : 12 + LEAST - 1], CALLS)
    every = [trial(set(), in_force=True), trial(set(SESSIONS[12:]))]
    assert recommended(every, few, weights(few)) is None
    assert change(*every, few, weights(few)).verdict == "too few sessions"
    assert recommended(every, TRUTH, weights(TRUTH)) is every[1]
    assert change(*every, TRUTH, weights(TRUTH)).verdict == "better"


def test_balanced_weights_are_those_of_youden() -> None:
    """A miss weighs as many false alarms as there are healthy sessions to a stuck one; given ones stand as given."""
    assert weights(truth_from(SESSIONS, ["x", "y"], CALLS)) == Weights(1.0, 12.0, balanced=True)
    assert weights(TRUTH, miss=5) == Weights(1.0, 5.0)
    assert weights(TRUTH, false_alarm=0.5) == Weights(0.5, 1.0)


def test_nothing_changes_by_minus_nothing() -> None:
    """What is rounded to nothing has no sign that says otherwise."""
    assert _changed(-0.0, (-0.0004, 0.0004)) == "change of the share +0.0 %, 95 %: +0.0 % to +0.0 %"


def test_a_search_that_is_terminated_leaves_nothing_behind(tmp_path: Path) -> None:
    """SIGTERM ends it as Ctrl-C does: its temporary directory is deleted."""
    record(tmp_path / "h", [*two_days()][:200], live=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = """
import os, signal
from trustfold.cli.main import main
from trustfold.history.whatif import search

def terminated(*_given, **_named):
    print(os.listdir(os.environ["TMPDIR"]), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()

search.search = terminated
main(["whatif", "--search", "--history", "h"])
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "trustfold-whatif-" in ended.stdout, ended.stderr
    assert (ended.returncode, list(scratch.iterdir())) == (ExitCode.INTERRUPTED, [])

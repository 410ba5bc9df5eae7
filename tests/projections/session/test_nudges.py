"""Nudges: when a pattern is told to the model, how strongly, and whether it helped.

See docs/design/semantics.md#nudges.
"""

from __future__ import annotations

import pytest
from fixed_rules import BehaviourRules, Rules
from story import Story
from trustfold.projections.session.nudges import MAX_PENDING
from trustfold.rules.rules import SeverityLadder

READ = ("read_file", {"path": "/src/a.py"})


def test_nudges_follow_severity() -> None:
    """Minor gentle, moderate direct, severe interrupt; each on its lane."""
    story = Story().works(*READ, result="same", times=6)
    assert story.nudges() == [("repetitive_calls", kind) for kind in ("gentle", "direct", "interrupt")]
    assert [one["lane"] for one in story.all("nudge.issued")] == ["context_hint", "system_guidance", "pause"]
    assert story.all("nudge.issued")[0]["message"].startswith("read_file `/src/a.py` was called 3 times")
    assert story.all("nudge.issued")[2]["message"].startswith("Stopped after 6 equal calls of read_file `/src/a.py`")


@pytest.mark.parametrize(
    ("level", "types"),
    [
        ("off", []),
        ("gentle", ["gentle"] * 3),
        ("direct", ["gentle", "direct", "direct"]),
        ("full", ["gentle", "direct", "interrupt"]),
    ],
)
def test_levels_clamp_and_never_drop(level: str, types: list[str]) -> None:
    """A session's level is a cap on strength, not a filter."""
    story = Story()
    story.event("session.settings_changed", settings={"nudge_level": level})
    story.works(*READ, result="same", times=6)
    assert [kind for _, kind in story.nudges()] == types


def test_an_explicit_false_switches_nudges_off_and_null_inherits() -> None:
    """nudge_enabled false wins over the default; null goes back to it."""
    story = Story()
    story.event("session.settings_changed", settings={"nudge_enabled": False})
    assert story.works(*READ, result="same", times=3).nudges() == []
    story.event("session.settings_changed", settings={"nudge_enabled": None})
    assert story.works(*READ, result="same").nudges() == [("repetitive_calls", "direct")]


def test_one_nudge_at_a_time() -> None:
    """Where one event raises two patterns, a missing program goes before the retry of it."""
    story = Story().fails("bash", {"command": "jqq ."}, with_="", message="jqq: command not found", times=3)
    assert {name for name, _, _ in story.patterns()} == {"error_retry_loop", "missing_environment"}
    assert story.nudges() == [("missing_environment", "gentle")]


def test_a_nudge_that_works_is_judged_effective() -> None:
    """No repeat within five calls."""
    story = Story().works(*READ, result="same", times=3)
    for number in range(5):
        story.works("query_db", {"q": number}, result=str(number))
    assert [one["effective"] for one in story.all("nudge.judged")] == [True]


def test_an_ignored_nudge_raises_the_next() -> None:
    """After the cooldown, at the same severity, the next nudge is a step stronger."""
    rules = Rules(behaviour=BehaviourRules(repetitive_calls=SeverityLadder(minor=3, moderate=30, severe=30)))
    story = Story(rules=rules).works(*READ, result="same", times=13)
    assert story.all("nudge.judged")[0]["effective"] is False
    assert story.nudges() == [("repetitive_calls", "gentle"), ("repetitive_calls", "direct")]


def test_the_cooldown_outlives_the_streak() -> None:
    """A pattern that clears and comes back within ten calls is reported again, but not nudged again."""
    story = Story()
    story.works("list_tools", {"n": 9}, result="the old tools")
    for lap in range(3):
        for number in range(3):
            story.works("list_tools", {"lap": lap, "n": number}, result="the old tools")
        story.works("edit_file", {"path": f"/{lap}"}, result=f"{lap}")
    assert story.found("introspection_loop") == [("minor", 3)] * 3
    assert story.nudges() == [("introspection_loop", "gentle")]


def test_a_request_that_fails_again_has_ignored_the_nudge() -> None:
    """Whatever its text says this time: the request was repeated, failing."""
    story = Story().fails("query_db", {"q": 1}, message="cannot reach alpha", times=3)
    story.works("read_file", {"path": "/a"}, result="text")
    story.fails("query_db", {"q": 1}, with_="validation", message="something else altogether")
    assert [one["effective"] for one in story.all("nudge.judged")] == [False]


def test_a_request_that_works_or_is_left_alone_has_followed_it() -> None:
    """At once, or after five other calls."""
    for follows in (True, False):
        story = Story().fails("query_db", {"q": 1}, message="cannot reach alpha", times=3)
        if follows:
            story.works("query_db", {"q": 1}, result="a row")
        else:
            for number in range(5):
                story.works("read_file", {"path": f"/{number}"}, result=f"text {number}")
        assert [one["effective"] for one in story.all("nudge.judged")] == [True], follows


def test_a_nudge_names_the_request() -> None:
    """The command and not the tool; also on its own, for platforms that show it."""
    story = Story().fails("bash", {"command": "make   all"}, message="it broke", times=3)
    nudge, told = story.decided("nudge.issued"), story.decided("pattern.detected")
    assert "`make all`" in nudge["message"]
    assert nudge["request"] == told["request"] == "make all"
    assert "in a row" not in nudge["message"]


@pytest.mark.parametrize(
    ("tool", "args", "shown"),
    [
        ("bash", {"command": 'grep "a\\.b" x | tr -d "\\n"'}, '`grep "a\\.b" x | tr -d "\\n"` has failed'),
        ("read_file", {"path": "/x.py"}, "read_file `/x.py` has failed"),
        ("list_jobs", {"page": 7}, 'list_jobs `{"page":7}` has failed'),
        ("list_jobs", {}, "list_jobs has failed"),
        ("run_sql", {"sql": "select 1"}, "run_sql `select 1` has failed"),
    ],
)
def test_a_request_is_named_as_the_model_wrote_it(tool: str, args: dict[str, object], shown: str) -> None:
    """A command without the escapes of JSON; an argument that does not speak for itself with its tool."""
    story = Story().fails(tool, args, message="it broke", times=3)
    assert story.decided("nudge.issued")["message"].startswith(shown)


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("bash", {"command": f"curl -H 'Authorization: Bearer {SECRET}' https://api.example.com/"}),
        ("http_request", {"url": "https://api.example.com/", "headers": {"Authorization": f"Bearer {SECRET}"}}),
        ("login", {"password": "tulip-and-rose-7", "user": "ada"}),
    ],
)
def test_no_secret_of_a_request_is_stored_or_told(tool: str, args: dict[str, object]) -> None:
    """Neither in the snapshot of an open call, nor in a decision, nor in the text of a nudge."""
    story = Story().fails(tool, args, message="it broke", times=4)
    story.started(tool, args)
    _ = story.outputs
    kept = b"".join(output.value or b"" for output in story.outputs if output.topic != "events")
    assert story._topology is not None
    for processor in story._topology.processors.values():
        kept += b"".join(snapshot or b"" for _, snapshot in processor.snapshot())
    assert b"error_retry_loop" in kept
    assert SECRET.encode() not in kept
    assert b"tulip-and-rose-7" not in kept


def test_only_a_carried_nudge_counts() -> None:
    """Of a publisher that tells what it delivered: no effect, no next level, no cooldown of a nudge before it has."""
    ladder = SeverityLadder(minor=3, moderate=30, severe=30)
    story = Story(rules=Rules(behaviour=BehaviourRules(repetitive_calls=ladder)))
    story.event("session.started", reports_deliveries=True)
    story.works(*READ, result="same", times=12)  # it waits, and is not written again
    assert [one["nudge_type"] for one in story.all("nudge.issued")] == ["gentle"]
    story.works(*READ, result="same")  # the cooldown: what waits is old, and replaced by one of its own level
    first, second = story.all("nudge.issued")
    assert second["nudge_type"] == "gentle"
    assert [one["nudge_id"] for one in story.all("nudge.withdrawn")] == [first["id"]]
    for _ in range(2):  # told twice, it counts once
        story.event("nudge.delivered", nudge_id=second["id"])
    story.event("nudge.delivered", nudge_id=first["id"])
    story.works(*READ, result="same", times=10)
    assert [(one["nudge_id"], one["effective"]) for one in story.all("nudge.judged")] == [(second["id"], False)]
    assert story.decided("nudge.issued")["nudge_type"] == "direct"


@pytest.mark.parametrize("ends", ["works", "user", "session", "other agent"])
def test_a_nudge_that_no_answer_carried_is_withdrawn(ends: str) -> None:
    """When its streak is over it is judged by nobody, and the next streak is nudged again."""
    story = Story()
    story.event("session.started", reports_deliveries=True)
    story.fails("query_db", {"q": 1}, message="cannot reach alpha", times=3)
    match ends:
        case "works":
            story.works("query_db", {"q": 1}, result="a row")
        case "user":
            story.user_says(9)
        case "session":
            story.event("session.ended")
        case _:
            story.event("model.text", text="The other one is at work.", agent_id="b")
            story.user_says(9)
    assert [one["nudge_id"] for one in story.all("nudge.withdrawn")] == [story.decided("nudge.issued")["id"]]
    story.fails("query_db", {"q": 1}, message="cannot reach alpha", times=3)
    assert len(story.all("nudge.issued")) == 2
    assert story.all("nudge.judged") == []


def waits_for_delivery() -> Story:
    """A session whose publisher tells deliveries, with a nudge about a missing program that none has carried."""
    story = Story()
    story.event("session.started", reports_deliveries=True)
    for number in range(3):
        story.fails("bash", {"command": f"terraform plan {number}"}, with_="", message="terraform: command not found")
    assert [one["pattern"] for one in story.all("nudge.issued")] == ["missing_environment"]
    return story


def withdrawn(story: Story) -> list[str]:
    """Ids of the nudges that were withdrawn."""
    return [one["nudge_id"] for one in story.all("nudge.withdrawn")]


def test_a_nudge_of_a_pattern_that_outlives_its_session_is_withdrawn_with_it() -> None:
    """Nobody is left who could carry it."""
    story = waits_for_delivery()
    story.user_says(9)
    assert withdrawn(story) == []
    story.event("session.ended")
    assert withdrawn(story) == [story.decided("nudge.issued")["id"]]


def test_a_nudge_that_is_called_wrong_while_it_waits_is_withdrawn() -> None:
    """Whether the alarm names the nudge or its pattern, and whichever agent acts."""
    for kind in ("nudge.issued", "pattern.detected"):
        for agent in (None, "b"):
            story = waits_for_delivery()
            if agent:
                story.event("model.text", text="The other one is at work.", agent_id=agent)
            story.event("feedback.false_alarm", output_id=story.decided(kind)["id"])
            assert withdrawn(story) == [story.decided("nudge.issued")["id"]]


def test_the_oldest_of_many_waiting_nudges_is_withdrawn() -> None:
    """It is not dropped in silence."""
    story = Story()
    story.event("session.started", reports_deliveries=True)
    for number in range(MAX_PENDING + 2):
        for repeat in range(3):
            story.fails(
                "bash",
                {"command": f"program{number} {repeat}"},
                with_="",
                message=f"program{number}: command not found",
            )
    issued = {one["id"] for one in story.all("nudge.issued")}
    assert len(issued) > MAX_PENDING
    assert issued - set(withdrawn(story)) == {one.nudge_id for one in story.state().pending_nudges}


def test_a_session_that_starts_again_goes_on_where_it_was() -> None:
    """Undelivered nudges of all agents are issued again, the old ones are withdrawn, and the report counts them."""
    story = waits_for_delivery()
    first = story.decided("nudge.issued")
    story.event("session.settings_changed", settings={"nudge_level": "gentle"})
    story.event("model.text", text="The other one is at work.", agent_id="b")
    story.event("session.started", reports_deliveries=True, turn_index=4)
    assert withdrawn(story) == [first["id"]]
    again = story.decided("nudge.issued")
    assert (again["pattern_id"], again["message"]) == (first["pattern_id"], first["message"])
    assert again["id"] != first["id"]
    restored = story.decided("session.restored")
    assert restored["caused_by"] == again["caused_by"]
    what = ("turn_index", "active_patterns", "pending_nudges", "settings_restored")
    assert [restored[name] for name in what] == [4, 1, 1, True]
    story.event("nudge.delivered", nudge_id=again["id"])
    story.event("session.started", reports_deliveries=True)
    assert len(story.all("nudge.issued")) == 2
    assert "pending_nudges" not in story.decided("session.restored")


def test_what_a_restored_session_issues_again_keeps_to_its_level() -> None:
    """Off since then: the nudge goes on waiting, and is withdrawn with its session."""
    story = waits_for_delivery()
    story.event("session.settings_changed", settings={"nudge_level": "off"})
    story.event("session.started", reports_deliveries=True)
    assert len(story.all("nudge.issued")) == 1
    assert story.decided("session.restored")["active_patterns"] == 1


@pytest.mark.parametrize("settings", [None, {"nudge_level": "gentle"}])
def test_nothing_is_restored_of_a_session_of_which_nothing_is_kept(settings: dict[str, str] | None) -> None:
    """Neither of a first start, nor after a text alone, nor of settings that the start itself brings."""
    story = Story()
    story.event("session.started", settings=settings)
    story.says("Hello.")
    story.event("session.started", settings=settings)
    assert story.all("session.restored") == []

"""Behaviour detectors: what is a loop, and what is work (docs/design/semantics.md#behaviour)."""

from __future__ import annotations

import orjson
import pytest
from fixed_rules import BehaviourRules, Rules
from story import Story
from trustfold.projections.session import announcing
from trustfold.rules.rules import Ladder, ToolRules

READ = ("read_file", {"path": "/src/a.py"})


def found(story: Story, pattern: str) -> list[tuple[str, int]]:
    """Severity and repetitions of each report of a pattern."""
    return [(severity, count) for name, severity, count in story.patterns() if name == pattern]


# --- repetitive_calls ---------------------------------------------------------------------------------------------


def test_same_call_same_result_rises_at_three_four_and_six() -> None:
    """One open pattern whose severity rises, not one detection per call."""
    story = Story().works(*READ, result="same", times=7)
    assert found(story, "repetitive_calls") == [("minor", 3), ("moderate", 4), ("severe", 6)]


def test_other_steps_may_lie_between() -> None:
    """Repeats count anywhere in the window, not only in a row."""
    story = Story()
    for number in range(3):
        story.works(*READ, result="same").works("fetch_row", {"n": number}, result=f"row {number}")
    assert found(story, "repetitive_calls") == [("minor", 3)]


def test_a_changed_result_is_polling() -> None:
    """A counter that moves is progress, however often it is read."""
    story = Story()
    for number in range(20):
        story.works("job_state", {"id": 7}, result=f"{number} of 20 done")
    assert story.patterns() == []


def test_volatile_parts_do_not_hide_a_loop() -> None:
    """Times, durations, process ids and UUIDs are no news."""
    story = Story()
    for number in range(4):
        story.works(
            "exec_query", {"q": 1}, result=f"no rows ({number}.5 ms) pid {900 + number} at 2026-01-05T10:00:0{number}Z"
        )
    assert found(story, "repetitive_calls") == [("minor", 3), ("moderate", 4)]


def test_argument_order_does_not_matter() -> None:
    """Canonical arguments: the same call in another key order is the same call."""
    story = Story()
    for args in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2}):
        story.works("lookup_item", args, result="same")
    assert found(story, "repetitive_calls") == [("minor", 3)]


def test_distinct_arguments_are_work() -> None:
    """Thirty writes to thirty files, all answered the same, are a batch."""
    story = Story()
    for number in range(30):
        story.works("write_file", {"path": f"/f{number}"}, result="written")
    assert story.patterns() == []


def test_a_parallel_batch_is_one_step() -> None:
    """Three identical calls started together count once."""
    story = Story()
    for _ in range(2):
        calls = [story.started(*READ, call=None, idempotency_key=str(n)) for n in range(1)]
        calls += [story.started("read_file", {"path": "/src/a.py", "n": n}) for n in range(2)]
        for call in calls:
            story.finished(call, "read_file", result="same")
    assert story.patterns() == []


def test_pollers_have_more_patience() -> None:
    """A polling tool may give the same answer nine times; the tenth is worth a hint."""
    story = Story().works("process", {"action": "poll", "id": 1}, result="running", times=9)
    assert found(story, "repetitive_calls") == []
    assert found(story.works("process", {"action": "poll", "id": 1}, result="running"), "repetitive_calls") == [
        ("minor", 10)
    ]


def test_a_user_message_ends_a_streak() -> None:
    """Two repeats, a user message, two repeats: nothing."""
    story = Story().works(*READ, times=2)
    story.user_says()
    assert story.works(*READ, times=2).patterns() == []


def test_loops_are_seen_across_turns() -> None:
    """A turn's start forgets nothing."""
    story = Story()
    for turn in range(4):
        story.event("turn.started", turn_index=turn)
        story.works(*READ)
    assert found(story, "repetitive_calls") == [("minor", 3), ("moderate", 4)]


# --- error_retry_loop ---------------------------------------------------------------------------------------------


def test_same_call_failing_the_same_way() -> None:
    """Three, four and six unchanged retries."""
    story = Story().fails("bash", {"command": "broken"}, message="fail", times=6)
    assert found(story, "error_retry_loop") == [("minor", 3), ("moderate", 4), ("severe", 6)]


def test_edit_and_test_again_is_work() -> None:
    """A successful, new action between failures starts the count afresh."""
    story = Story()
    for number in range(8):
        story.fails("bash", {"command": "pytest -q"}, message="1 failed")
        story.works("edit_file", {"path": "/x.py", "text": number})
    assert found(story, "error_retry_loop") == []


def test_looking_is_no_fix() -> None:
    """A successful `ls` between failures is not a successful action."""
    story = Story()
    for number in range(4):
        story.fails("bash", {"command": "pytest -q"}, message="1 failed")
        story.works("bash", {"command": f"ls d{number}"}, result=f"files {number}")
    assert found(story, "error_retry_loop") == [("minor", 3), ("moderate", 4)]


def test_different_commands_are_diagnosis() -> None:
    """Three different failing commands are no retry."""
    story = Story()
    for number in range(6):
        story.fails("bash", {"command": f"broken {number}"}, message="fail")
    assert found(story, "error_retry_loop") == []


def test_refusals_and_cancelled_siblings_are_not_failures() -> None:
    """Neither a user's rejection nor a sibling cancelled with a failed batch is a retry."""
    story = Story()
    for kind in ("user_rejected", "sibling_error"):
        for _ in range(4):
            story.finished(
                story.started("bash", {"command": "x"}),
                "bash",
                status="error",
                result=None,
                error={"type": kind, "message": kind},
            )
    assert story.patterns() == []


def test_a_tool_may_have_a_ladder_of_its_own() -> None:
    """One tool is retried more patiently; the others are not."""
    patient = Ladder(minor=6, moderate=8, severe=10)
    rules = Rules(behaviour=BehaviourRules(error_retry_by_tool={"web_search": patient}))
    story = Story(rules=rules).fails("web_search", {"q": "x"}, times=5).fails("bash", {"command": "make"}, times=3)
    assert [one["tool_sequence"][0] for one in story.all("pattern.detected", pattern="error_retry_loop")] == ["bash"]
    story.fails("web_search", {"q": "x"})
    assert found(story, "error_retry_loop")[-1] == ("minor", 6)


# --- alternating_loop ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("period", [2, 3, 4, 5, 6])
def test_cycles_of_two_to_six_calls(period: int) -> None:
    """Three laps of any short cycle with the same results."""
    story = Story()
    for _ in range(3):
        for number in range(period):
            story.works("query_db", {"q": number}, result=f"r{number}")
    assert found(story, "alternating_loop") == [("minor", 3)]


def test_the_evidence_of_a_cycle_is_all_of_it() -> None:
    """Every call of the laps told, the one that completed them last."""
    story = Story()
    for _ in range(3):
        story.works("query_db", {"q": 1}, result="one").works("query_db", {"q": 2}, result="two")
    told = story.decided("pattern.detected", pattern="alternating_loop")
    finishes = [
        record["id"] for _, value in story.records if (record := orjson.loads(value))["type"].endswith("finished")
    ]
    assert told["caused_by"] == finishes
    assert told["tool_sequence"] == ["query_db"] * 6


def test_a_cycle_takes_at_least_two_laps() -> None:
    """With one lap any two calls would be a loop; such a rule is refused."""
    with pytest.raises(ValueError, match="2 laps"):
        BehaviourRules(alternating_loop=Ladder(minor=1, moderate=2, severe=3))


def test_one_call_repeated_is_no_cycle() -> None:
    """AAAAAA is repetition, and only that."""
    assert found(Story().works(*READ, times=12), "alternating_loop") == []


def test_a_cycle_with_changing_results_is_progress() -> None:
    """The same calls in turn, with news each time, are no loop."""
    story = Story()
    for lap in range(6):
        for number in range(2):
            story.works("query_db", {"q": number}, result=f"lap {lap}")
    assert story.patterns() == []


# --- introspection, reading, announcing ---------------------------------------------------------------------------


def test_introspection_rises_with_the_count() -> None:
    """Two, four and six looks at the tools without another call; different tools count together."""
    story = Story()
    for number in range(3):
        story.works("list_tools", {"n": number}, result=f"a{number}").works(
            "get_tool_schemas", {"n": number}, result=f"b{number}"
        )
    assert found(story, "introspection_loop") == [("minor", 2), ("moderate", 4), ("severe", 6)]


def test_every_detector_runs() -> None:
    """Identical introspection is both an introspection loop and repetition; neither hides the other."""
    story = Story().works("list_tools", {}, result="same", times=3)
    assert {name for name, _, _ in story.patterns()} == {"introspection_loop", "repetitive_calls"}


def test_reads_with_news_are_work() -> None:
    """Thirty-six reads in a row that each bring something new are exploration."""
    story = Story()
    for number in range(36):
        story.works("read_file", {"path": f"/src/{number}.py"}, result=f"content {number}")
    assert story.patterns() == []


def test_stale_reads_are_flagged() -> None:
    """Reading the same few things again and again brings nothing new."""
    story = Story()
    for _ in range(3):
        for number in range(7):
            story.works("read_file", {"path": f"/src/{number}.py"}, result=f"content {number}")
    assert [severity for severity, _ in found(story, "read_only_loop")] == ["minor", "moderate"]


def test_endless_reading_is_flagged_anyway() -> None:
    """Beyond the cap, news or not."""
    story = Story()
    for number in range(40):
        story.works("read_file", {"path": f"/src/{number}.py"}, result=f"content {number}")
    assert found(story, "read_only_loop") == [("minor", 40)]


@pytest.mark.parametrize(("exempt", "alarms"), [(True, []), (False, [("minor", 8)])])
def test_reading_before_anything_else_may_be_exempt(exempt: bool, alarms: list[tuple[str, int]]) -> None:
    """A turn that has only read so far explores; after the first other call the cap holds."""
    rules = Rules(
        behaviour=BehaviourRules(cold_start_exempt=exempt, read_only_cap=Ladder(minor=8, moderate=20, severe=30))
    )
    story = Story(rules=rules)
    story.user_says()
    for number in range(12):
        story.works("read_file", {"path": f"/src/{number}.py"}, result=f"content {number}")
    assert found(story, "read_only_loop") == alarms
    story.works("edit_file", {"path": "/x"})
    for number in range(8):
        story.works("read_file", {"path": f"/docs/{number}.md"}, result=f"text {number}")
    assert found(story, "read_only_loop") == [*alarms, ("minor", 8)]


def test_the_user_starts_another_exploration() -> None:
    """Who asks for something else lets the model look around again."""
    rules = Rules(
        behaviour=BehaviourRules(cold_start_exempt=True, read_only_cap=Ladder(minor=8, moderate=20, severe=30))
    )
    story = Story(rules=rules).works("edit_file", {"path": "/x"})
    story.user_says()
    for number in range(12):
        story.works("read_file", {"path": f"/src/{number}.py"}, result=f"content {number}")
    assert found(story, "read_only_loop") == []


def test_the_same_answer_to_other_searches_is_no_news() -> None:
    """Six searches worded anew that find the same nothing are a loop; one that finds something is work."""
    story = Story()
    for number in range(7):
        story.works("grep", {"pattern": f"word {number}"}, result="no matches")
    assert found(story, "read_only_loop") == [("minor", 6)]
    story = Story()
    for number in range(12):
        story.works("grep", {"pattern": f"word {number}"}, result=f"line {number}" if number % 4 == 3 else "no matches")
    assert found(story, "read_only_loop") == []


def test_an_action_ends_reading() -> None:
    """Reads, an edit, reads: no loop."""
    story = Story()
    for _ in range(4):
        story.works(*READ, times=2).works("edit_file", {"path": "/x", "n": _})
    assert found(story, "read_only_loop") == []


@pytest.mark.parametrize(
    "text",
    [
        "Shall I proceed now?",
        "Let me know if you need anything else.",
        "I'll need your user ID to go on.",
    ],
)
def test_questions_and_offers_are_no_announcements(text: str) -> None:
    """Messages that hand the word to the user announce nothing, however many there are."""
    story = Story()
    for _ in range(5):
        story.says(text)
    assert found(story, "announce_no_action") == []


def test_announcements_followed_by_work_are_fine() -> None:
    """The way coding agents write: say it, do it."""
    story = Story()
    for number in range(8):
        story.says("Now let me look at the next file.")
        story.works("read_file", {"path": f"/{number}"}, result=f"{number}")
    assert story.patterns() == []


def test_publishers_may_keep_texts_private() -> None:
    """With a digest and the announces flag the pattern is found all the same."""
    story = Story()
    for number in range(2):
        story.event("model.text", text_digest=f"d{number}", announces=True)
    assert found(story, "announce_no_action") == [("minor", 2)]


def test_detection_can_be_switched_off_for_a_session() -> None:
    """pattern_detection_enabled false finds nothing; outcomes still flow."""
    story = Story()
    story.event("session.settings_changed", settings={"pattern_detection_enabled": False})
    story.fails("bash", {"command": "x"}, times=6)
    assert story.patterns() == []
    assert story.moves("bash|command=x") == [("trusted", "escalated")]


@pytest.mark.parametrize("last", ["success", "cancelled"])
def test_a_batch_counts_whoever_finishes_last(last: str) -> None:
    """A neutral call at the end of a parallel batch does not hide the cycle."""
    story = Story()
    for _ in range(3):
        calls = [story.started("foo", {"a": 1}), story.started("bar", {"b": 1})]
        story.finished(calls[0], "foo")
        story.finished(calls[1], "bar", status=last, result=None if last == "cancelled" else "ok")
        story.works("baz", {"c": 1})
    assert found(story, "alternating_loop") == [("minor", 3)]


def test_equal_calls_in_a_batch_do_not_cancel_out() -> None:
    """Batches of two equal calls with new arguments each time are no cycle."""
    story = Story()
    for lap in range(4):
        calls = [story.started("foo", {"lap": lap}, idempotency_key=str(n)) for n in range(1)]
        calls.append(story.started("foo", {"lap": lap, "x": 1}))
        for call in calls:
            story.finished(call, "foo", result="same")
        story.works("baz", {"c": 1})
    assert found(story, "alternating_loop") == []


def test_calls_without_arguments_or_digest_are_not_taken_for_equal() -> None:
    """A publisher that keeps its arguments to itself gets no false alarm."""
    story = Story()
    for number in range(6):
        story.event("tool_call.started", call_id=f"c{number}", tool_name="edit_file")
        story.event(
            "tool_call.finished", call_id=f"c{number}", tool_name="edit_file", status="success", result="File updated."
        )
    assert story.patterns() == []


def test_publishers_of_finishes_only_are_understood() -> None:
    """A lone finish follows an announcement up."""
    story = Story()
    for number in range(4):
        story.says("I'll write the file now.")
        story.finished(f"c{number}", "write_file")
    assert story.patterns() == []


def test_a_second_end_of_a_turn_is_no_silent_turn() -> None:
    """Only open turns can end."""
    story = Story()
    for turn in range(3):
        story.event("turn.started", turn_index=turn)
        story.says("I'll do it now.")
        story.event("turn.ended", turn_index=turn)
    for _ in range(3):
        story.event("turn.ended", turn_index=2)
    assert [severity for severity, _ in found(story, "announce_no_action")] == ["minor", "moderate"]


def test_two_unknown_results_are_never_the_same() -> None:
    """Where the publisher gives neither result nor digest, nothing says that a call brought nothing new."""
    story = Story()
    for number in range(8):
        story.works("query_db", {"q": 1}, result=None)
        story.works("read_file", {"path": f"/f{number % 2}"}, result=None)
    assert story.patterns() == []
    for _ in range(3):
        call = story.started("query_db", {"q": 2})
        story.event("tool_call.finished", call_id=call, tool_name="query_db", status="success", result_digest="same")
    assert story.found("repetitive_calls") == [("minor", 3)]


def test_many_reads_with_news_are_named_for_what_they_are() -> None:
    """Beyond the cap they are reported; no text says that they brought nothing new."""
    story = Story()
    for number in range(90):
        story.works("read_file", {"path": f"/f{number}"}, result=f"text {number}")
    assert story.found("read_only_loop") == [("minor", 40), ("moderate", 60), ("severe", 90)]
    texts = [one["message"] for one in story.all("nudge.issued", pattern="read_only_loop")]
    assert len(texts) >= 3
    assert all("new" not in text and "reads in a row" in text for text in texts)


def test_volatile_arguments_do_not_tell_calls_apart() -> None:
    """Elements of a page are numbered anew at each look: the same click with another number is the same."""
    rules = Rules(tools=ToolRules(volatile_args={"click": frozenset({"ref"})}))
    told = []
    for given in (rules, Rules()):
        story = Story(rules=given)
        for number in range(20):
            story.works("click", {"name": "Next", "ref": number}, result="nothing happened")
        told.append({pattern for pattern, *_ in story.patterns()})
    assert "repetitive_calls" in told[0]
    assert "paging_loop" not in told[0]
    assert "repetitive_calls" not in told[1]


# --- announcements by structure -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Most kijavítom a hibát.",
        "Nyt korjaan virheen.",
        "지금 수정하겠습니다.",
        "سأصلح الخطأ الآن.",
        "The file has three lines.",
    ],
)
def test_message_after_message_announces_in_any_language(text: str) -> None:
    """What is followed by another message, and by no call, promised something; one message more is how people talk."""
    story = Story()
    for number in range(6):
        story.says(f"{text} ({number}) ok.")
    assert found(story, "announce_no_action") == [("minor", 2), ("moderate", 3), ("severe", 4)]
    assert "followed by no call" in story.decided("nudge.issued", nudge_type="gentle")["message"]


def test_turns_that_end_with_a_message_announce_in_any_language() -> None:
    """Across turns, with nothing but a look at the tools between, each of them counts: as with phrases."""
    for texts in (["Most kijavítom a hibát."] * 4, ["I'll fix it now."] * 4):
        story = Story()
        for text in texts:
            story.turn_starts()
            story.says(text)
            story.works("list_tools")
            story.turn_ends()
        assert found(story, "announce_no_action") == [("minor", 2), ("moderate", 3), ("severe", 4)]


GREEK = "Να συνεχίσω;"  # noqa: RUF001 - Greek letters, and a semicolon that asks


@pytest.mark.parametrize("text", ["Folytassam?", "続けますか？", "هل أتابع؟", GREEK, "¿Sigo?", "**Shall I go on?**"])
def test_questions_end_with_a_question_mark_of_their_script(text: str) -> None:
    """They hand the word to the user, who may be slow."""
    story = Story()
    for _ in range(4):
        story.turn_starts()
        story.says(text)
        story.turn_ends()
    assert found(story, "announce_no_action") == []


def test_a_call_or_the_user_keeps_messages_from_announcing() -> None:
    """Work with commentary, and a chat."""
    story = Story()
    for number in range(8):
        story.says("Most kijavítom a hibát.")
        story.says("Az első sor hibás.")
        story.works("edit_file", {"n": number}, result=str(number)) if number % 2 else story.user_says()
    assert found(story, "announce_no_action") == []


def test_a_publisher_that_keeps_texts_private_says_what_announces() -> None:
    """`announces: false` is its word; without it structure decides."""
    for announces, expected in ((False, []), (None, [("minor", 2)])):
        story = Story()
        for number in range(4):
            story.event("model.text", text_digest=f"d{number}", announces=announces)
        assert found(story, "announce_no_action") == expected


def test_phrases_of_the_rules_announce_too() -> None:
    """In any case, at the beginning of a word; without them the same text announces nothing."""
    assert announcing.announces("Alsdann folgt die Datei.", ("ALSDANN",))
    assert not announcing.announces("Alsdann folgt die Datei.")
    assert not announcing.announces("Dannalsdann folgt die Datei.", ("alsdann",))


def test_a_step_out_of_the_cycle_ends_it_although_it_fails() -> None:
    """Trying something else breaks the cycle; it begins to count anew."""
    story = Story()
    for _ in range(3):
        story.works("query_db", {"q": 1}, result="one").works("query_db", {"q": 2}, result="two")
    assert "alternating_loop" not in story.cleared()
    story.fails("query_db", {"q": 3})
    assert "alternating_loop" in story.cleared()


def test_announcements_that_were_followed_by_work_are_no_evidence() -> None:
    """A later report names the messages since the last call, and none of before."""
    story = Story()
    for _ in range(3):
        story.says("I'll fix the bug now.")
    story.works("edit_file", {"path": "/a"})
    later = [story.says("I'll run the tests now.") for _ in range(3)]
    told = story.decided("pattern.detected", pattern="announce_no_action")
    assert (told["repetitions"], told["caused_by"]) == (3, later)


def test_reads_without_news_and_too_many_reads_are_one_streak() -> None:
    """Which of the two ladders is higher may change from read to read; the streak goes on, and ends once."""
    story = Story(
        rules=Rules(
            behaviour=BehaviourRules(
                read_only_loop=Ladder(minor=2, moderate=90, severe=99),
                read_only_cap=Ladder(minor=3, moderate=5, severe=99),
            )
        )
    )
    for number, result in enumerate(("a", "b", "b", "b", "c")):
        story.works("read_file", {"path": f"/{number}"}, result=result)
    assert found(story, "read_only_loop") == [("minor", 3), ("moderate", 5)]
    story.works("edit_file", {"path": "/a"}, result="edited")
    assert story.cleared() == ["read_only_loop"]

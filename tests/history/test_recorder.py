"""The recorder: what a file's name promises, and what happens when it is stopped, repeated or out of room."""

from __future__ import annotations

import errno
from datetime import date
from pathlib import Path
from typing import get_args

import duckdb
import orjson
import pytest
from msgspec import UNSET, structs
from recorded import ARRIVED, DAY_MS, one, record, rows, small_event, told, without_zone
from story import Story
from trustfold.errors import ConfigError
from trustfold.history import parquet
from trustfold.history.files import data_files, next_offset
from trustfold.history.history_error import HistoryError, HistoryFull, HistoryTaken
from trustfold.history.recorder import PartitionRecorder
from trustfold.projections.calls.signatures import telling_line
from trustfold.rules.calls import ToolRules
from trustfold.rules.rules import RuleSet
from trustfold.schemas.codec import decode_event
from trustfold.schemas.events import Event, ToolCallFinished
from trustfold.schemas.examples import EXAMPLES
from trustfold.schemas.topics import TOPICS
from trustfold.schemas.vocabulary import FailureSeverity


def feed(recorder: PartitionRecorder, numbers: range, *, arrived_ms: int = ARRIVED) -> None:
    """Events whose id and offset are their number."""
    for number in numbers:
        recorder.add("events", 0, number, arrived_ms, b"s1", small_event(number))


def ids(root: Path) -> list[str]:
    """Ids of all recorded events, by offset."""
    return [row[0] for row in rows(root, 'SELECT id FROM recorded_events ORDER BY "offset"')]


def names(root: Path) -> list[str]:
    """Paths of the data files below the topic."""
    return sorted(f"{file.path.parent.name}/{file.path.name}" for file in data_files(root, "events"))


def test_a_file_is_named_by_its_partition_and_offsets(tmp_path: Path) -> None:
    """Topic and day of arrival are folders, the range is the name."""
    recorder = PartitionRecorder(tmp_path)
    assert recorder.own("events", 0) == 0
    feed(recorder, range(10))
    assert recorder.flush() == {("events", 0): 10}
    recorder.close()
    assert names(tmp_path) == ["date=2026-01-05/0-0-9.parquet"]
    assert ids(tmp_path) == [f"e{number}" for number in range(10)]


def test_a_restart_goes_on_after_the_last_name_and_ignores_what_it_has(tmp_path: Path) -> None:
    """Reading the log again from its beginning doubles nothing."""
    for stop in (4, 9, 9, 15):
        recorder = PartitionRecorder(tmp_path)
        following = recorder.own("events", 0)
        feed(recorder, range(stop))
        assert following <= stop
        recorder.flush()
        recorder.close()
    assert ids(tmp_path) == [f"e{number}" for number in range(15)]
    assert next_offset(tmp_path, "events", 0) == 15


def test_what_was_not_flushed_is_read_again(tmp_path: Path) -> None:
    """Rows that only waited are gone with the process, and their offsets are free."""
    recorder = PartitionRecorder(tmp_path)
    recorder.own("events", 0)
    feed(recorder, range(5))
    recorder.flush()
    feed(recorder, range(5, 8))
    recorder.close()
    assert next_offset(tmp_path, "events", 0) == 5


def test_a_new_day_begins_a_new_file_and_a_late_record_stays_with_its_neighbours(tmp_path: Path) -> None:
    """Offsets of a file are one stretch, whatever the clocks of the brokers say."""
    recorder = PartitionRecorder(tmp_path)
    recorder.own("events", 0)
    feed(recorder, range(3))
    feed(recorder, range(3, 5), arrived_ms=ARRIVED + DAY_MS)
    feed(recorder, range(5, 6), arrived_ms=ARRIVED)
    recorder.flush()
    recorder.close()
    assert names(tmp_path) == ["date=2026-01-05/0-0-2.parquet", "date=2026-01-06/0-3-5.parquet"]
    assert rows(tmp_path, "SELECT DISTINCT date FROM recorded_events ORDER BY 1") == [
        (date(2026, 1, 5),),
        (date(2026, 1, 6),),
    ]


def test_times_in_files_have_their_zone_and_older_ones_without_are_read(tmp_path: Path) -> None:
    """Both in one history, also merged, whatever the zone of the reader; views have them in UTC."""
    story = Story().fails("search", times=3)
    for part in (story.records[:2], story.records[2:]):
        told_of = tmp_path / f"h{len(part)}"
        record(told_of, part, decisions=False)
    every = "SELECT time, arrived, typeof(time) FROM events ORDER BY time"
    early, late = (next(iter(data_files(tmp_path / name, "events"))).path for name in ("h2", "h4"))
    expected = rows(tmp_path / "h2", every) + rows(tmp_path / "h4", every)
    assert {one[2] for one in expected} == {"TIMESTAMP"}
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        kinds = {kind for _, kind, *_ in connection.execute(f"DESCRIBE FROM '{late}'").fetchall() if "TIME" in kind}
        assert kinds == {"TIMESTAMP WITH TIME ZONE"}
        connection.execute(f"COPY ({without_zone(early)}) TO '{tmp_path}/older.parquet' (FORMAT parquet)")
    (tmp_path / "older.parquet").rename(late.with_name("0-100-101.parquet"))
    assert rows(tmp_path / "h4", every) == expected
    files = list(data_files(tmp_path / "h4", "events"))
    writer = parquet.ParquetWriter(tmp_path / "h4")
    writer.merge([file.path for file in files], late.with_name("0-0-101.parquet"), 6)
    writer.close()
    for file in files:
        file.path.unlink()
    assert rows(tmp_path / "h4", every) == expected


def test_a_result_is_digested_and_never_stored(tmp_path: Path) -> None:
    """Neither a good result nor one that tells of a failure leaves its text in any file."""
    secret = "the launch code is swordfish"
    story = Story()
    story.works("read_file", {"path": "a"}, result=secret)
    story.works("read_file", {"path": "a"}, result={"text": secret, "n": 1})
    story.finished(story.started("read_file"), "read_file", result={"error": "no such file", "body": secret})
    story.event("no.such.type", result=secret)
    story.event("tool_call.finished", call_id="x", result=secret)
    told(tmp_path, story, decisions=False)
    for file in data_files(tmp_path):
        for row in rows(tmp_path, f"FROM read_parquet('{file.path}')"):
            assert "swordfish" not in str(row)
    assert rows(tmp_path, "SELECT count(*) FROM tool_calls WHERE result_digest IS NOT NULL") == [(3,)]
    assert rows(tmp_path, "SELECT fault FROM recorded_events WHERE fault IS NOT NULL ORDER BY 1") == [
        ("missing_field",),
        ("unknown_type",),
    ]


HOSTILE = 'a\\","session_id":"b","call_id":"c é '
ODD = {
    "ids": {"id": HOSTILE, "session_id": HOSTILE, "call_id": HOSTILE, "message_id": HOSTILE},
    "finer than milliseconds": {"time": "2026-01-05T10:00:00.123456Z"},
    "milliseconds": {"time": "2026-01-05T10:00:00.120Z"},
    "whole seconds": {"time": "2026-01-05T10:00:00Z"},
    "another zone": {"time": "2026-01-05T12:00:00.120+02:00"},
    "names within": {"args": {"call_id": "c1", "session_id": "s", "id": "i", "time": "t"}, "call_id": "c1"},
}
STARTED = {"type": "tool_call.started", "schema_version": "1.0", "id": "e1", "session_id": "s1", "call_id": "c1"}


def test_an_event_is_read_back_as_it_was(tmp_path: Path) -> None:
    """From the views and after a restart, though what stands in columns is not stored again."""
    times = {"time": "2026-01-05T10:00:00Z", "tool_name": "search"}
    events = [orjson.dumps(STARTED | times | odd) for odd in ODD.values()]
    tags = {kind.__struct_config__.tag for kind in get_args(Event)}
    events += [orjson.dumps(example) for name, example in EXAMPLES.items() if name in tags]
    record(tmp_path, [("events", event) for event in events], decisions=False)
    expected = [decode_event(event) for event in events]
    found = [row[0] for row in rows(tmp_path, 'SELECT record FROM recorded_events ORDER BY "offset"')]
    writer = parquet.ParquetWriter(tmp_path)
    again = [row[-1] for row in writer.last_records([file.path for file in data_files(tmp_path, "events")], 0, 1 << 30)]
    writer.close()
    assert len(expected) > 20
    for records in (found, again):
        read = [decode_event(given if isinstance(given, bytes) else given.encode()) for given in records]
        assert [_without_result(event) for event in read] == [_without_result(event) for event in expected]
    ((stored,),) = rows(tmp_path, f"SELECT min(record) FROM read_parquet('{tmp_path}/events/*/*')")
    assert stored.startswith('{"schema_version":"1.0"')


def _without_result(event: Event) -> Event:
    if isinstance(event, ToolCallFinished):
        return structs.replace(event, result=UNSET, result_sketch=None)
    return event


def test_a_refused_record_is_not_kept_in_its_dead_letter(tmp_path: Path) -> None:
    """It may hold anything; why it was refused and where it stands is kept."""
    story = Story()
    story.records.append(("events", b'{"swordfish": tru'))
    told(tmp_path, story)
    letter = one(tmp_path, "FROM dead_letters")
    assert (letter["reason"], letter["source_topic"], letter["record"]) == ("not_json", "events", None)


def test_a_mark_on_a_dead_letter_is_no_dead_letter(tmp_path: Path) -> None:
    """What says that a record was published again is recorded, and counted as no fault."""
    story = Story()
    story.records.append(("events", b"{"))
    told(tmp_path, story)
    recorder = PartitionRecorder(tmp_path)
    recorder.own("dead-letters", 7)
    recorder.add("dead-letters", 7, 0, ARRIVED, b"x", orjson.dumps(EXAMPLES["dead_letter.republished"]))
    recorder.flush()
    recorder.close()
    assert rows(tmp_path, "SELECT reason FROM dead_letters") == [("not_json",)]
    assert ("dead_letter.republished",) in rows(tmp_path, "SELECT type FROM recorded_dead_letters")


def test_calls_carry_what_the_folds_know_of_them(tmp_path: Path) -> None:
    """A finish says when its call began, which key it counts for, and how bad it was."""
    story = Story()
    story.fails("bash", {"command": "sudo rm -rf /"}, with_="", message="Permission denied")
    told(tmp_path, story)
    call = one(tmp_path, "FROM tool_calls")
    assert call["failure_key"] == "bash|danger=root"
    assert (call["verdict"], call["severity"]) == ("failure", "security")
    assert (call["time"] - call["started"]).total_seconds() == 2
    assert call["signature"] == "tool_error: Permission denied"


def test_a_withheld_text_is_a_signature_by_its_digest(tmp_path: Path) -> None:
    """A type that is its own code stands once."""
    error = {"type": "OSError", "code": "OSError"}
    story = Story()
    for digest in ("0f179d7702cc",) * 2 + ("5be4aa0d11ff",) * 3:
        story.finished(
            story.started("t"), "t", status="error", result=None, error=error | {"message": f"withheld {digest}"}
        )
    told(tmp_path, story)
    assert rows(tmp_path, "SELECT signature, failures FROM failure_signatures() ORDER BY failures") == [
        ("OSError: withheld 0f179d7702cc", 2), ("OSError: withheld 5be4aa0d11ff", 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "shared"),
    [
        ("Timeout after 30s on /home/ann/x.py", "Timeout after 45s on /srv/y.py"),
        ('no key "alpha" in table 0x1f3a', 'no key "beta" in table 0x77'),
        ("GET https://a.example/x?q=1 failed (503)", "GET https://b.example/y failed (502)"),
    ],
)
def test_failures_of_different_agents_share_a_signature(message: str, shared: str, tmp_path: Path) -> None:
    """Names, numbers, paths, addresses and quotations are taken out."""
    told(tmp_path, Story(session="a").fails("t", message=message, with_="").fails("t", message=shared, with_=""))
    assert rows(tmp_path, "SELECT failures FROM failure_signatures()") == [(2,)]


@pytest.mark.parametrize(
    ("message", "telling"),
    [
        ("Exit code 1\nmake: *** [all] Error 2", "make: *** [all] Error 2"),
        ("Exit code 1", "Exit code 1"),
        ("", ""),
        ("Exit code 127\n\n(eval):1: command not found: docker", "(eval):1: command not found: docker"),
        ("Wall time: 0.2 seconds\nProcess exited with code 1\nOutput:\nmkfs not found", "mkfs not found"),
        ("### Error\nTimeoutError: click timed out", "TimeoutError: click timed out"),
        ("Exit code 2\nUsage: x [ARGS]\n\n╭─ Error ──╮\n│ No such command 'info'. │\n╰──╯", "No such command 'info'."),
        ("Exit code 1\nrunner 1.2\n0 errors so far\nwarning: no cache\nx.go:3:4: y is unused", "x.go:3:4: y is unused"),
        ("Exit code 1\n$ run tests\n[test] task failed\nFAIL TestOrders", "FAIL TestOrders"),
        ("Traceback (most recent call last):\n  File \"error.py\", line 1\n    fail()\nKeyError: 'a'", "KeyError: 'a'"),
        ("Exit code 1\n\x1b[31mfatal: bad object\x1b[0m", "fatal: bad object"),
        ("Exit code 1\nhello\nworld", "hello"),
        ("String to replace not found.\nString: error in x", "String to replace not found."),
    ],
)
def test_line_that_tells_what_failed(message: str, telling: str) -> None:
    """Lines that clients and shells put above an error are passed over."""
    assert telling_line(message) == telling


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_severities_as_frequent_the_worse_one_is_shown(tmp_path: Path, order: int) -> None:
    """Whichever came first."""
    story = Story()
    for severity in ("not_found", "crash", "timeout", "not_found", "crash", "timeout")[::order]:
        story.fails("bash", message="it failed", with_=severity)
    told(tmp_path, story)
    assert rows(tmp_path, "SELECT failures, severity FROM failure_signatures()") == [(6, "crash")]
    assert rows(tmp_path, "SELECT failures, severity FROM compared_signatures()") == [(6, "crash")]


def test_every_severity_has_a_rank(tmp_path: Path) -> None:
    """In the order of the vocabulary, from the worst one."""
    told(tmp_path, Story().works("bash"))
    named = ", ".join(f"('{one}')" for one in FailureSeverity)
    query = f"SELECT severity FROM (VALUES {named}) AS named(severity) ORDER BY severity_rank(severity) DESC"
    assert rows(tmp_path, query) == [(str(one),) for one in FailureSeverity]


def test_an_event_sent_twice_counts_once(tmp_path: Path) -> None:
    """Both records are kept; the views show one."""
    story = Story().works("read_file")
    story.records += story.records
    told(tmp_path, story)
    assert rows(tmp_path, "SELECT count(*) FROM recorded_events") == [(4,)]
    assert rows(tmp_path, "SELECT count(*) FROM tool_calls") == [(1,)]


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Whoever looks at `full` never lets more wait than was agreed."""
    recorder = PartitionRecorder(tmp_path, max_rows=50, max_bytes=1 << 30)
    recorder.own("events", 0)
    waited = 0
    for number in range(500):
        feed(recorder, range(number, number + 1))
        waited = max(waited, recorder.rows)
        if recorder.full:
            recorder.flush()
            assert recorder.bytes == 0
    recorder.close()
    assert waited == 50
    assert len(ids(tmp_path)) == 500


def test_a_full_disk_stops_reading_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says so, nothing half-written stays, and with room again the same rows are written."""
    recorder = PartitionRecorder(tmp_path, max_rows=10)
    recorder.own("events", 0)
    recorder.own("nudges", 0)
    feed(recorder, range(10))
    recorder.add("nudges", 0, 0, ARRIVED, b"s1", b'{"id":"n1","type":"nudge.issued"}')

    def no_room(_made: Path, _target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(parquet, "put_in_place", no_room)
        for _ in range(3):
            with pytest.raises(HistoryFull, match="the disk is full; nothing is lost"):
                recorder.flush()
    assert recorder.full
    assert names(tmp_path) == []
    assert recorder.flush() == {("events", 0): 10, ("nudges", 0): 1}
    recorder.close()
    assert ids(tmp_path) == [f"e{number}" for number in range(10)]


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A file in the way, or no right to write, is one sentence."""
    (tmp_path / "history").write_text("")
    with pytest.raises(HistoryError, match="cannot be written"):
        PartitionRecorder(tmp_path / "history")


def test_two_recorders_never_write_the_same_partition(tmp_path: Path) -> None:
    """The second is told; when the first lets go, it goes on where the first stopped."""
    first, second = PartitionRecorder(tmp_path), PartitionRecorder(tmp_path)
    first.own("events", 0)
    with pytest.raises(HistoryTaken, match="another process records partition 0 of events"):
        second.own("events", 0)
    feed(first, range(3))
    first.flush()
    first.disown("events", 0)
    assert second.own("events", 0) == 3
    first.close()
    second.close()


def test_histories_of_two_sources_do_not_mix(tmp_path: Path) -> None:
    """Offsets mean something only within one source."""
    recorder = PartitionRecorder(tmp_path)
    recorder.from_source("store A")
    recorder.from_source("store A")
    with pytest.raises(ConfigError, match="holds the history of store A, this is store B"):
        recorder.from_source("store B")
    recorder.close()


def test_every_topic_of_the_catalogue_can_be_recorded() -> None:
    """A new topic needs its row before it is published."""
    assert set(parquet.RECORDED_TOPICS) == set(TOPICS)


def test_a_finish_whose_start_was_never_seen_is_a_call_like_others(tmp_path: Path) -> None:
    """It says enough of the call by itself; only what its arguments were is not known."""
    finish = {"type": "tool_call.finished", "call_id": "c1", "tool_name": "bash", "status": "error", "duration_ms": 250}
    record(tmp_path, [("events", small_event(0, **finish))])
    row = one(tmp_path, "FROM tool_calls")
    assert (row["failure_key"], row["verdict"], row["summary"]) == ("bash", "failure", None)
    assert (row["time"] - row["started"]).total_seconds() == 0.25


def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    """Quotes and patterns in it are taken as they are."""
    root = tmp_path / "team [a]" / "it's * here?"
    told(root, Story().works("search"))
    assert rows(root, "SELECT tool_name FROM tool_calls") == [("search",)]


def test_failures_judged_otherwise_are_told_with_who_decided(tmp_path: Path) -> None:
    """By the rules of the tool in force, and by the publisher; others are not listed."""
    rules = RuleSet(tools=ToolRules(failures={"charge": {"InsufficientFundsError": "answer"}}))
    story = Story()
    for error in (
        {"type": "InsufficientFundsError"},
        {"type": "HTTPError", "http_status": 503, "severity": "not_found"},
        {"type": "HTTPError", "http_status": 503, "severity": "server_error"},
        {"type": "HTTPError", "http_status": 503},
        {"type": "InsufficientFundsError"},
    ):
        tool = "search" if "http_status" in error else "charge"
        story.finished(story.started(tool), tool, status="error", result=None, error=error)
    record(tmp_path, story.records, rules=rules)
    listed = "SELECT tool_name, error, reclassified, severity, judged_by, failures FROM reclassified_failures"
    assert sorted(rows(tmp_path, listed)) == [
        ("charge", "InsufficientFundsError", "server_error", "validation", "rules: InsufficientFundsError", 2),
        ("search", "HTTPError", "server_error", "not_found", "publisher", 1),
    ]

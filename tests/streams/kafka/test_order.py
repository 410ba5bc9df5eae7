"""The order of folding: the oldest head record first, within bounds of time, records and patience."""

from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from hypothesis import given
from hypothesis import strategies as st
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.order import LEAD_RECORDS, SLACK_MS, MergeOrder, commit_note, read_note
from trustfold.streams.kafka.outputs import ORDER_TIME

EVENTS = [TP("events", number) for number in range(3)]
OUTCOMES = TP("outcomes", 0)
COMMANDS = TP("commands", 0)
STANDINGS = TP("standings", 0)
STAGES = {"events": 0, "outcomes": 1, "commands": 1, "standings": 2}
INTERNAL = {"outcomes": "outcomes", "standings": "standings"}
PATIENCE = 10.0
SETTINGS = KafkaSettings(stage_lead=1, worker_lead=60, order_wait=PATIENCE, poll_records=500)


class Log:
    """Partitions at a broker, and the order that a worker folds them in."""

    def __init__(self, **partitions: list[int]) -> None:
        self.now = 0.0
        self.order = MergeOrder(SETTINGS, STAGES, INTERNAL, clock=lambda: self.now)
        self.skew = self.order.skew
        self.places: dict[TP, tuple[int, int] | None] = {}
        times = {TP(name.rstrip("0123456789"), int(name[-1])): stamps for name, stamps in partitions.items()}
        self.order.open(dict.fromkeys(times, 0))
        for tp, stamps in times.items():
            self.places[tp] = 0, 0
            if stamps:
                self.fetch(tp, *stamps)

    def fetch(self, tp: TP, *times: int, end: int = 0) -> None:
        """Records of these times come from the broker, whose log ends there or at `end`."""
        start = (self.places[tp] or (0, 0))[0]
        self.order.add(tp, [_record(start + at, time) for at, time in enumerate(times)])
        self.places[tp] = start + len(times), max(end, start + len(times))

    def take(self, *in_flight: tuple[int, int]) -> list[tuple[TP, list[int]]]:
        """What is folded next: partition and record times."""
        batches = self.order.take(self.places.get, in_flight)
        return [(batch.tp, [record.timestamp for record in batch.records]) for batch in batches]

    def times(self) -> list[int]:
        """The same, times alone."""
        return [time for _, times in self.take() for time in times]


def _record(offset: int, time: int) -> Any:
    return SimpleNamespace(offset=offset, timestamp=time, headers=())


def test_the_oldest_head_is_folded_first() -> None:
    """Whatever partition and topic it is in; what is simultaneous stays in one batch."""
    log = Log(events0=[1000, 1500, 1501], events1=[1200, 1900], outcomes0=[1300], commands0=[1700])
    assert log.take() == [
        (EVENTS[0], [1000]),
        (EVENTS[1], [1200]),
        (OUTCOMES, [1300]),
        (EVENTS[0], [1500, 1501]),
        (COMMANDS, [1700]),
        (EVENTS[1], [1900]),
    ]


@given(st.lists(st.lists(st.integers(1, 100_000), max_size=60), min_size=3, max_size=3), st.integers(1, 20))
def test_every_record_once_and_in_the_order_of_time(stamps: list[list[int]], poll: int) -> None:
    """However records arrive: none is lost or twice, and none is folded later than others by more than the slack."""
    log = Log(events0=[], events1=[], events2=[])
    left = {tp: sorted(times) for tp, times in zip(EVENTS, stamps, strict=True)}
    log.places = {tp: (0, len(times)) for tp, times in left.items()}
    found: list[int] = []
    while any(left.values()) or any(map(len, log.order._buffers.values())):
        for tp, times in left.items():
            if times:
                log.fetch(tp, *times[:poll], end=(log.places[tp] or (0, 0))[1])
                del times[:poll]
        found += log.times()
    assert sorted(found) == sorted(time for times in stamps for time in times)
    newest = 0
    for time in found:
        assert time >= newest - SLACK_MS
        newest = max(newest, time)


def test_a_partition_whose_records_are_not_fetched_yet_is_waited_for() -> None:
    """The broker has more of a partition than the worker: it may be older than all others."""
    log = Log(events0=[5000], events1=[])
    log.places[EVENTS[1]] = 0, 7
    assert log.take() == []
    assert log.order.held == "fetch"
    log.fetch(EVENTS[1], 1000, end=7)
    assert log.times() == [1000]


@pytest.mark.parametrize("place", [None, (0, 7)])
def test_no_partition_is_waited_for_for_ever(place: tuple[int, int] | None, caplog: pytest.LogCaptureFixture) -> None:
    """One without leader gives nothing: the others go on after the patience, which is told once."""
    log = Log(events0=[5000], events1=[])
    log.places[EVENTS[1]] = place
    assert log.take() == []
    log.now = PATIENCE + 1
    assert log.times() == [5000]
    log.fetch(EVENTS[0], 6000)
    assert log.times() == [6000]
    assert [record.getMessage() for record in caplog.records] == [
        "events/1 returned no record for 10 s; the other partitions no longer wait for it"
    ]


def test_an_empty_partition_at_its_end_holds_nothing_up() -> None:
    """Its log end is known, and it is there."""
    assert Log(events0=[5000], events1=[]).times() == [5000]


def test_a_stage_does_not_run_ahead_of_what_it_has_written() -> None:
    """An outcome that is under way holds up events that are newer by more than the lead, once there are many."""
    log = Log(events0=[10_000, 10_500, 12_000], outcomes0=[])
    log.order.outputs_in_flight.queued(9_800, ["outcomes"] * LEAD_RECORDS)
    assert log.times() == [10_000, 10_500]
    assert log.take() == []
    assert log.order.held == "stage"
    ticket = log.order.outputs_in_flight.sent(OUTCOMES, 9_800, LEAD_RECORDS)
    log.order.outputs_in_flight.taken(1)
    log.order.outputs_in_flight.acknowledged(ticket, LEAD_RECORDS)
    assert log.take() == []
    log.order.outputs_in_flight.folded(OUTCOMES, LEAD_RECORDS)
    assert log.times() == [12_000]


def test_few_records_under_way_hold_up_no_event_but_every_command() -> None:
    """In a thin log the first stage need not wait at each event; a later stage keeps its order in time."""
    log = Log(events0=[20_000], commands0=[])
    log.order.outputs_in_flight.queued(10_000, ["outcomes"])
    assert log.times() == [20_000]
    log.fetch(COMMANDS, 20_000)
    assert log.take() == []


def test_a_stage_waits_for_nothing_that_goes_to_a_later_one() -> None:
    """Outcomes of a thin log are folded in one poll, whatever standings are under way; standings wait for outcomes."""
    log = Log(outcomes0=[10_000, 20_000, 30_000], standings0=[15_000])
    log.order.outputs_in_flight.queued(9_000, ["standings", "nudges"])
    assert log.take() == [(OUTCOMES, [10_000]), (OUTCOMES, [20_000]), (OUTCOMES, [30_000])]
    log.order.outputs_in_flight.taken(1)
    log.order.outputs_in_flight.queued(12_000, ["outcomes"])
    assert log.take() == []
    assert log.order.held == "stage"
    log.order.outputs_in_flight.taken(1)
    assert log.take() == [(STANDINGS, [15_000])]


def test_what_is_acknowledged_in_partitions_of_others_is_not_waited_for() -> None:
    """It comes back to another worker; and a fold may be faster than the acknowledgement."""
    log = Log(events0=[20_000], outcomes0=[])
    outputs_in_flight = log.order.outputs_in_flight
    outputs_in_flight.folded(OUTCOMES, 500)
    for tp, end in ((TP("outcomes", 7), 500), (OUTCOMES, 500), (OUTCOMES, -1)):
        outputs_in_flight.acknowledged(outputs_in_flight.sent(tp, 1_000, 200), end)
    assert not outputs_in_flight.count
    assert log.times() == [20_000]


def test_what_is_sent_is_not_waited_for_where_it_cannot_come_next() -> None:
    """It goes to another worker, or behind records that wait in its partition: those of a log that is folded again."""
    log = Log(events0=[20_000], outcomes0=[20_000], commands0=[20_000])
    log.order.outputs_in_flight.sent(TP("outcomes", 7), 1_000, LEAD_RECORDS)
    log.order.outputs_in_flight.sent(OUTCOMES, 1_000, LEAD_RECORDS)
    assert log.times() == [20_000] * 3


def test_records_that_never_come_back_do_not_stop_the_worker() -> None:
    """After the patience they are waited for no more, until something comes back again."""
    log = Log(events0=[20_000], outcomes0=[])
    log.order.outputs_in_flight.queued(1_000, ["outcomes"] * 200)
    assert log.take() == []
    log.now = PATIENCE + 1
    assert log.take() == []
    assert log.times() == [20_000]


def test_time_of_an_outcome_is_that_of_its_cause() -> None:
    """The header says it; the record's own timestamp is the present, which retention goes by."""
    log = Log(events0=[5_000], outcomes0=[])
    outcome = SimpleNamespace(offset=0, timestamp=9_000_000, headers=[(ORDER_TIME, b"4000 w1")])
    log.order.add(OUTCOMES, [outcome])
    assert [tp for tp, _ in log.take()] == [OUTCOMES, EVENTS[0]]


def test_a_worker_far_ahead_waits_a_little(caplog: pytest.LogCaptureFixture) -> None:
    """Records of its own stages flow; those from outside wait, until the patience ends or the skew is small again."""
    log = Log(events0=[100_000], outcomes0=[99_900])
    log.skew.update([commit_note(10_000, "w1"), commit_note(None, "w1"), commit_note(50_000, "w1")])
    assert log.take() == [(OUTCOMES, [99_900])]
    assert log.order.held == "workers"
    assert log.skew.seconds == 90
    log.skew.update([commit_note(41_000, "w1")])
    assert log.times() == [100_000]
    log.fetch(EVENTS[0], 110_000, 111_000)
    assert log.take() == []
    log.now += PATIENCE + 1
    assert log.times() == [110_000, 111_000]
    assert len(caplog.records) == 1
    log.skew.update([])
    assert not log.skew.seconds


@pytest.mark.parametrize(
    ("reached_ms", "present", "waits"),
    [
        pytest.param(30_000, False, True, id="catches up"),
        pytest.param(300, False, False, id="does not catch up"),
        pytest.param(30_000, True, False, id="catches up, but the record is of the present"),
    ],
)
def test_over_a_backlog_a_worker_that_catches_up_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reached_ms: int, *, present: bool, waits: bool
) -> None:
    """However long that takes; another one, and where the present waits, for the patience alone."""
    log = Log(events0=[9_000_000])
    monkeypatch.setattr(log.skew, "_present", lambda: 9_001 if present else 9_000_000)
    taken = []
    for exchange in range(20):
        log.skew.update([commit_note(exchange * reached_ms, "w1")])
        taken += log.take()
        log.now += PATIENCE / 4
    assert (not taken) is waits
    assert len(caplog.records) == (not waits)


@given(st.none() | st.integers(0, 2**53))
def test_a_commit_tells_the_time_it_has_come_to(at: int | None) -> None:
    """What is written there is read back; commits of other releases say nothing."""
    assert read_note(commit_note(at, "w1")) == (None if at is None else (at, "w1"))
    assert read_note("some other note") is None


def _outcome(offset: int, at: int, worker: str) -> Any:
    return SimpleNamespace(offset=offset, timestamp=9_000_000, headers=[(ORDER_TIME, b"%d %s" % (at, worker.encode()))])


def test_outcomes_tell_how_far_their_worker_has_come() -> None:
    """Between two exchanges; its own, those of workers at their log ends, and older ones say nothing."""
    log = Log(events0=[100_000], outcomes0=[])
    log.skew.update([commit_note(10_000, "w1"), commit_note(12_000, "w1"), commit_note(30_000, "w2")])
    told = [(25_000, "w1"), (50_000, "w3"), (50_000, log.order.worker), (20_000, "w1")]
    for offset, (at, worker) in enumerate(told):
        log.order.add(OUTCOMES, [_outcome(offset, at, worker)])
    assert log.skew.slowest == 25_000
    log.order.add(OUTCOMES, [_outcome(4, 45_000, "w1"), _outcome(5, 45_000, "w2")])
    assert log.skew.slowest == 45_000
    assert EVENTS[0] in [tp for tp, _ in log.take()]


def test_an_older_note_takes_nothing_back() -> None:
    """The note of a commit that was under way is older than what an outcome has told since."""
    log = Log(events0=[100_000], outcomes0=[])
    log.skew.update([commit_note(10_000, "w1")])
    log.order.add(OUTCOMES, [_outcome(0, 45_000, "w1")])
    log.skew.update([commit_note(30_000, "w1")])
    assert log.skew.slowest == 45_000


def test_until_the_first_exchange_nobody_knows_who_is_behind() -> None:
    """So the first records from outside wait for it, but not for ever; a worker without others does not wait."""
    log = Log(events0=[100_000])
    log.skew.begin(alone=True)
    assert log.times() == [100_000]
    for end in (lambda: log.skew.update([]), lambda: setattr(log, "now", log.now + PATIENCE + 1)):
        log.fetch(EVENTS[0], 200_000)
        log.skew.begin(alone=False)
        assert log.take() == []
        assert log.order.held == "workers"
        end()
        assert log.times() == [200_000]


def test_a_worker_waits_only_for_what_waiting_orders() -> None:
    """In a log with an event in ten minutes, the slowest worker's pace is the lead; a standing one's is the setting."""
    log = Log(events0=[3_000_000])
    for reached in (0, 600_000, 1_200_000, 1_800_000, 2_400_000):
        log.skew.update([commit_note(reached, "w1")])
    assert log.skew.lead_ms == 600_000
    assert log.times() == [3_000_000]
    log.fetch(EVENTS[0], 5_000_000)
    assert log.take() == []
    for _ in range(5):
        log.skew.update([commit_note(2_400_000, "w1")])
    assert log.skew.lead_ms == SETTINGS.worker_lead * 1000
    assert log.take() == []
    log.skew.update([])
    assert log.times() == [5_000_000]

"""Dead letters over a real broker: publishing again never sends twice, whoever tries and whatever interrupts it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from kafka_run import environment, settings_for
from trustfold.cli.clients import kafka_dead_letters
from trustfold.cli.clients.client import RepublishResult
from trustfold.cli.clients.kafka_dead_letters import LetterBox
from trustfold.cli.clients.kafka_log import OutgoingRecord, read, write
from trustfold.cli.main import main
from trustfold.errors import EventRejected, RejectReason
from trustfold.projections.dead_letters import dead_letter
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.topics import create_topics

pytestmark = [pytest.mark.broker, pytest.mark.durable_broker]

LETTERS = 6
AGAIN = "published again (what still cannot be processed becomes a dead letter again)"


def letter_of(number: int) -> Any:
    """A dead letter of a record that was refused; two of three are no JSON."""
    record: Any = SimpleNamespace(offset=number, timestamp=1_700_000_000_000, key=b"s%d" % number, value=b"%d" % number)
    reason = RejectReason.NOT_JSON if number % 3 else RejectReason.MISSING_FIELD
    return dead_letter(record, "events", 0, EventRejected(reason, "$", "wrong"))


@pytest.fixture
def deployment(broker: Any, topic_prefix: str) -> KafkaSettings:
    """Topics with LETTERS dead letters, one of them told by two workers."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=2)
    letters = [letter_of(number) for number in [*range(LETTERS), 2]]

    async def prepare() -> None:
        await create_topics(settings)
        topic = settings.topic("dead-letters")
        await write(settings, [OutgoingRecord(topic, one.key.encode(), one.value) for one in letters])

    asyncio.run(prepare())
    return settings


async def published(settings: KafkaSettings) -> Counter[bytes | None]:
    """What stands on `events`, and how often."""
    records, _ = await read(settings, settings.topic("events"))
    return Counter(record.value for record in records)


ONCE = Counter(b"%d" % number for number in range(LETTERS))


def ours(settings: KafkaSettings) -> dict[str, str]:
    """Environment of the commands."""
    return {name: value for name, value in environment(settings).items() if name.startswith("TRUSTFOLD_")}


def test_what_was_published_again_is_not_open_any_more(deployment: KafkaSettings) -> None:
    """By reason, with a limit, by name, then all, then again: each record is sent once, and the lists say so."""

    def run(*words: str) -> tuple[list[dict[str, Any]], str]:
        done = CliRunner().invoke(main, ["dead-letters", *words], env=ours(deployment))
        assert done.exit_code == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.rstrip().rpartition("\n")[2]

    listed, _ = run("list", "--json")
    assert [one["state"] for one in listed] == ["open"] * LETTERS
    assert len(run("list", "--json", "--limit", "2")[0]) == 2
    assert run("republish", "--reason", "not_json", "--limit", "1", "--yes")[1] == f"1 {AGAIN}"
    assert len(run("list", "--json", "--reason", "not_json")[0]) == 3
    left, _ = run("list", "--json")
    assert run("republish", left[0]["ref"], left[-1]["id"], "--yes")[1] == f"2 {AGAIN}"
    assert run("republish", "--all", "--yes")[1] == f"3 {AGAIN}"
    assert run("list", "--json")[0] == []
    assert run("republish", "--all", "--yes")[1] == "no dead letters to republish"
    assert run("republish", left[0]["ref"], "--yes")[1] == "no dead letters to republish; 1 were already republished"
    everything, _ = run("list", "--json", "--all")
    assert [one["state"] for one in everything] == ["republished"] * LETTERS
    assert asyncio.run(published(deployment)) == ONCE


def test_many_at_once_send_each_record_once(deployment: KafkaSettings) -> None:
    """Of several that publish the same letters at the same time, one sends each; the others say who has it."""

    async def race() -> list[RepublishResult]:
        letters = await LetterBox(deployment).letters(everything=False)
        return await asyncio.gather(*(LetterBox(deployment).republish(letters) for _ in range(4)))

    done = asyncio.run(race())
    assert sum(one.sent for one in done) == LETTERS
    assert all(one.sent + one.before + one.claimed == LETTERS for one in done)
    assert asyncio.run(published(deployment)) == ONCE


class _Killed(Exception):
    """The process is gone."""


@pytest.mark.slow
@pytest.mark.parametrize("reached", [0, 4, LETTERS])
def test_an_interrupted_attempt_is_taken_up(
    deployment: KafkaSettings, monkeypatch: pytest.MonkeyPatch, reached: int
) -> None:
    """Killed after it sent none, some or all of its records: the next one sends the rest, and nothing twice."""
    events = deployment.topic("events")

    async def killed(settings: KafkaSettings, records: Sequence[OutgoingRecord]) -> None:
        to_events = [one for one in records if one.topic == events]
        await write(settings, to_events[:reached] if to_events else records)
        if to_events:
            raise _Killed

    async def attempt() -> RepublishResult:
        box = LetterBox(deployment)
        return await box.republish(await box.letters(everything=False))

    with monkeypatch.context() as dying:
        dying.setattr(kafka_dead_letters, "write", killed)
        with pytest.raises(_Killed):
            asyncio.run(attempt())
    assert asyncio.run(attempt()) == RepublishResult(0, None, 0, LETTERS)  # its claims hold: it may be at work still
    monkeypatch.setattr(kafka_dead_letters, "CLAIM_S", 0.0)
    assert asyncio.run(attempt()) == RepublishResult(LETTERS - reached, None, reached, 0)
    assert asyncio.run(published(deployment)) == ONCE


def test_a_process_that_was_held_up_does_not_send(deployment: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was stopped between claim and sending cannot know that its claim still holds."""
    clock: Callable[[], float] = iter(
        [0.0, kafka_dead_letters.SEND_WITHIN_S + 1, kafka_dead_letters.SEND_WITHIN_S + 1]
    ).__next__
    monkeypatch.setattr(
        kafka_dead_letters, "time", SimpleNamespace(monotonic=clock, time_ns=kafka_dead_letters.time.time_ns)
    )

    async def attempt() -> RepublishResult:
        box = LetterBox(deployment)
        return await box.republish(await box.letters(everything=False))

    with pytest.raises(kafka_dead_letters.TrustfoldError, match="nothing was sent"):
        asyncio.run(attempt())
    assert asyncio.run(published(deployment)) == Counter()

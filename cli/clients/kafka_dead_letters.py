"""Dead letters on Kafka: list the open ones and republish their records, each at most once.

Kafka records cannot be annotated, so marks are records too: a mark on `dead-letters`, under the id of its letter, says
that a process is going to republish it (`claimed`), and another that it did (`sent`). All marks of a letter are in one
partition, so all processes read them in the same order and agree on which claim is valid: the first one, until it is
CLAIM_S old. A claiming process reads the log before it sends, and sends only the letters it holds.

If a process ends between claim and mark, it is unknown whether it sent the record. A republished record
carries the id of its letter as a header, so the next attempt looks for it first.
(docs/decisions/0044-dead-letters-are-marked-where-they-lie.md)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import orjson

from ...errors import TrustfoldError
from ...projections.dead_letters import original
from ...schemas.codec import encode, rfc3339
from ...schemas.decisions import DeadLetterRepublished
from ...schemas.envelope import output_id
from .client import LetterState, ListedLetter, RepublishResult
from .kafka_log import KafkaSettings, OutgoingRecord, StoredRecord, places_at, read, write

TOPIC = "dead-letters"
TYPE = "dead_letter.republished"

LETTER_HEADER = "trustfold-dead-letter"  # Header of a republished record: the id of its dead letter
CLAIM_S = 180.0  # Seconds that a claim is valid: several times the longest timeout of its holder

# Seconds after its claim in which a process may still send; a process that was suspended longer gives up
SEND_WITHIN_S = 60.0

CHUNK = 500  # Letters claimed, sent and marked in one batch
SKEW_S = 60.0  # Largest difference allowed between brokers' clocks when a record is searched by time


class LetterMark(NamedTuple):
    """Last valid mark of a letter: its owner, its time (milliseconds), and whether the letter was sent."""

    attempt: str
    since_ms: int
    sent: bool


class LetterBox:
    """The dead letters of one deployment."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Use the deployment of the settings."""
        self._settings = settings
        self._topic = settings.topic(TOPIC)

    async def letters(self, *, everything: bool) -> list[ListedLetter]:
        """Dead letters, oldest first, each once; those already republished only with `everything`."""
        records, _ = await read(self._settings, self._topic)
        letters = _letters(records, time.time_ns() // 1_000_000)
        return [one for one in letters if everything or one.state is not LetterState.REPUBLISHED]

    async def republish(self, letters: Sequence[ListedLetter]) -> RepublishResult:
        """Republish the records of dead letters, except those that any process has republished before.

        Raises:
            TrustfoldError: this process was suspended too long for its claims to be still valid.
            TimeoutError: the brokers did not acknowledge; the next attempt finds the records that were sent.
        """
        total = RepublishResult(0)
        for begin in range(0, len(letters), CHUNK):
            done = await self._republish(letters[begin : begin + CHUNK])
            total = RepublishResult(
                total.sent + done.sent, None, total.before + done.before, total.claimed + done.claimed
            )
        return total

    async def _republish(self, letters: Sequence[ListedLetter]) -> RepublishResult:
        attempt = uuid4().hex
        records, ends = await read(self._settings, self._topic)
        wanted = {str(one.body["id"]): one for one in letters}
        known = {str(one.body["id"]): one for one in _letters(records, _now()) if str(one.body["id"]) in wanted}
        free = [one for one in known.values() if one.state in {LetterState.OPEN, LetterState.INTERRUPTED}]
        interrupted = [one for one in free if one.state is LetterState.INTERRUPTED]
        found = await self._sent_before(interrupted, _marks(records))
        await self._mark(found, attempt, "sent")
        claimed_at = time.monotonic()
        chosen = [one for one in free if one not in found]
        await self._mark(chosen, attempt, "claimed")
        after, _ = await read(self._settings, self._topic, ends)
        held = _marks([*records, *after])
        ours = [one for one in chosen if _is_held(held.get(str(one.body["id"])), attempt)]
        if time.monotonic() - claimed_at > SEND_WITHIN_S:
            raise TrustfoldError(
                f"this process was suspended for {time.monotonic() - claimed_at:.0f} s after it claimed dead letters; "
                f"nothing was sent for them, run it again in {CLAIM_S:.0f} s"
            )
        await write(self._settings, [self._record(one) for one in ours])
        await self._mark(ours, attempt, "sent")
        before = len(found) + sum(one.state is LetterState.REPUBLISHED for one in known.values())
        return RepublishResult(len(ours), None, before, len(wanted) - len(ours) - before)

    async def _sent_before(self, letters: Sequence[ListedLetter], marks: dict[str, LetterMark]) -> list[ListedLetter]:
        """Letters whose republishing was interrupted, but whose record reached its topic."""
        ids: dict[str, set[str]] = {}
        for one in letters:
            ids.setdefault(one.body["topic"], set()).add(one.body["id"])
        found: set[str] = set()
        for topic, wanted in ids.items():
            real = self._settings.topic(topic)
            since = min(marks[one].since_ms for one in wanted) - int(SKEW_S * 1000)
            records, _ = await read(self._settings, real, await places_at(self._settings, real, since))
            found |= {
                value.decode(errors="replace")
                for record in records
                for name, value in record.headers
                if name == LETTER_HEADER
            } & wanted
        return [one for one in letters if one.body["id"] in found]

    async def _mark(self, letters: Iterable[ListedLetter], attempt: str, state: str) -> None:
        await write(self._settings, [self._mark_of(str(one.body["id"]), attempt, state) for one in letters])

    def _mark_of(self, letter: str, attempt: str, state: str) -> OutgoingRecord:
        mark = DeadLetterRepublished(
            schema_version="1.0",
            id=output_id(f"{letter}/{attempt}/{state}", TYPE, 0),
            dead_letter_id=letter,
            attempt_id=attempt,
            state="sent" if state == "sent" else "claimed",
            time=rfc3339(_now()),
        )
        return OutgoingRecord(self._topic, letter.encode(), encode(mark))

    def _record(self, letter: ListedLetter) -> OutgoingRecord:
        body = letter.body
        headers = [(LETTER_HEADER, str(body["id"]).encode())]
        return OutgoingRecord(
            self._settings.topic(body["topic"]), original(body, "key"), original(body, "value"), headers
        )


def _letters(records: Sequence[StoredRecord], now_ms: int) -> list[ListedLetter]:
    """Every letter once, oldest first; several workers may have reported one record."""
    marks = _marks(records)
    letters: dict[str, ListedLetter] = {}
    for record, body in _bodies(records):
        if body["type"] != TYPE:
            letters[str(body["id"])] = ListedLetter(record.ref, body, _state(marks.get(str(body["id"])), now_ms))
    return list(letters.values())


def _state(mark: LetterMark | None, now_ms: int) -> LetterState:
    if mark is None:
        return LetterState.OPEN
    if mark.sent:
        return LetterState.REPUBLISHED
    return LetterState.CLAIMED if now_ms - mark.since_ms < CLAIM_S * 1000 else LetterState.INTERRUPTED


def _marks(records: Iterable[StoredRecord]) -> dict[str, LetterMark]:
    """Valid mark of each letter that has one; computed from the log alone, so the same for every reader."""
    found: dict[str, LetterMark] = {}
    for record, body in _bodies(sorted(records, key=lambda one: (one.partition, one.offset))):
        if body["type"] != TYPE:
            continue
        try:
            mark = msgspec.convert(body, DeadLetterRepublished)
        except msgspec.ValidationError:
            continue
        held = found.get(mark.dead_letter_id)
        if mark.state == "sent":
            found[mark.dead_letter_id] = LetterMark(mark.attempt_id, record.timestamp, sent=True)
        elif held is None or (not held.sent and record.timestamp - held.since_ms >= CLAIM_S * 1000):
            found[mark.dead_letter_id] = LetterMark(mark.attempt_id, record.timestamp, sent=False)
    return found


def _is_held(mark: LetterMark | None, attempt: str) -> bool:
    return mark is not None and not mark.sent and mark.attempt == attempt


def _bodies(records: Iterable[StoredRecord]) -> Iterator[tuple[StoredRecord, dict[str, Any]]]:
    """Parsed records of this topic's own types; other records are skipped."""
    for record in records:
        try:
            body = orjson.loads(record.value or b"")
        except orjson.JSONDecodeError:
            continue
        if isinstance(body, dict) and body.get("type") in {"dead_letter", TYPE} and "id" in body:
            yield record, body


def _now() -> int:
    return time.time_ns() // 1_000_000

"""What moves in a text although nothing has changed, and what is news.

`moving_texts.jsonl` holds pairs of texts of one client or program each, invented in its format: whether they are the
same result (`request` absent) or the same failure of a call.
"""

import re
import time
from pathlib import Path

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from trustfold.projections.calls import masks
from trustfold.projections.calls.masks import MAX_FAILURE_CHARS, MAX_RESULT_BYTES, failure_text, mask, without_snapshots

PAIRS = [orjson.loads(line) for line in Path(__file__).with_name("moving_texts.jsonl").read_bytes().splitlines()]
PATTERNS = {name: value for name, value in vars(masks).items() if isinstance(value, re.Pattern)}

PIECES = r"""0 12 3.5 :34:56 2026-01-02 T10:11:12Z 1700000000 5s 12ms /tmp/ a.py: line attempt retry # of ( ) / pid=
    "age": took \n id request_id: req_ 0x1f - 550e8400-e29b-41d4-a716-446655440000 127.0.0.1:54321-> MB/s % ⠋ * x
    [12]""".split()
words = st.lists(st.sampled_from([*PIECES, "\n", "a"]), max_size=40)
pieces = words.map("".join)


def shown(pair: dict, side: str) -> bytes:
    """What a text of a pair is compared by."""
    if "request" not in pair:
        return mask(pair[side].encode())
    request = pair.get("other_request", pair["request"]) if side == "other" else pair["request"]
    return failure_text(pair[side], request)


def test_what_moves_is_no_news() -> None:
    """And what does not is: both directions, in formats of real clients."""
    assert [pair for pair in PAIRS if (shown(pair, "one") == shown(pair, "other")) is not pair["same"]] == []


def test_a_result_and_a_failure_keep_their_words() -> None:
    """Only what moves is replaced."""
    assert mask(b"took 3.2s, 2 errors left, see /tmp/a1/log") == b"took *, 2 errors left, see /tmp/*"
    assert failure_text("cd: x1: line 7:\n  no such", "cd x1") == b"cd: x1: line *: no such"
    assert failure_text("cd: abc: no such", "cd abc") == b"cd: <arg>: no such"


def test_numbers_of_snapshots_move() -> None:
    """A browser counts its snapshots in every reference; which element it is stays."""
    assert without_snapshots(b'- button "Save" [ref=s2e9]') == without_snapshots(b'- button "Save" [ref=s13e9]')
    assert without_snapshots(b"uid=1_3 link") == without_snapshots(b"uid=22_3 link")
    assert without_snapshots(b"[ref=s2e9]") != without_snapshots(b"[ref=s2e10]")
    assert without_snapshots(b"[ref=e9]") == b"[ref=e9]"


def test_the_text_of_a_failure_leaves_out_its_request() -> None:
    """Ten paths that do not exist are one failure with other arguments."""
    found = {failure_text(f"File /a/b{n}.py does not exist", f"/a/b{n}.py") for n in range(9)}
    assert len(found) == 1


@given(st.binary(max_size=3000) | pieces.map(str.encode))
@example(b"1s" * 2000)
def test_any_bytes_are_masked_without_growing(text: bytes) -> None:
    """Marks are no longer than what they stand for."""
    masked = mask(text)
    assert isinstance(masked, bytes)
    assert masked == mask(bytes(text))
    assert len(masked) <= min(len(text), MAX_RESULT_BYTES + 12)


@given(words.map(" ".join))
def test_a_masked_text_stays_as_it_is(text: str) -> None:
    """A recorded failure, which is masked, equals a live one."""
    masked = mask(text.encode()[:MAX_RESULT_BYTES])
    assert mask(masked) == masked


@given(st.text(max_size=5000) | pieces, st.text(max_size=400) | pieces)
def test_any_failure_has_a_text(message: str, request: str) -> None:
    """Bounded, whatever its message and request."""
    found = failure_text(message, request)
    assert found == failure_text(message, request)
    assert len(found) <= 6 * (MAX_FAILURE_CHARS + 40)


PUMPED = [
    *"0 1. 1, 1: a1 requestid id=a /tmp/ /tmp/a a- 0a0a- deadbeef \\n0 \\ \\temp\\a ( a.py:1 a.ts(1, \u280b %".split(),
    *'1/ <arg> \x1a " 1h1m try. [1] req_a attempt retry('.split(),
    *("12 ", "12:34:56 ", "2026-01-02 ", "attempt 1 of ", "age 1", " retry (", "request id: ", " ", "x y", "12 kB/s "),
    "12:34:56 h p[1] ",
]


def spent(function: object, text: object) -> float:
    """Processor time of a call, the better of two."""
    times = []
    for _ in range(2):
        started = time.process_time()
        function(text)
        times.append(time.process_time() - started)
    return min(times)


@pytest.mark.parametrize("pump", PUMPED)
def test_long_texts_cost_in_proportion(pump: str) -> None:
    """Ten times the text takes about ten times as long, through each expression and through what is public."""
    short, long = (pump * (size // len(pump.encode())) for size in (8_000, 80_000))
    for name, pattern in PATTERNS.items():
        texts = (short.encode(), long.encode()) if isinstance(pattern.pattern, bytes) else (short, long)
        one, ten = (spent(lambda text: sum(1 for _ in pattern.finditer(text)), text) for text in texts)  # noqa: B023
        assert ten < 40 * one + 0.02, name
    assert spent(mask, (pump * 1_000_000)[:1_000_000].encode()) < 0.05
    assert spent(lambda text: failure_text(text, text), (pump * 1_000_000)[:1_000_000]) < 0.1

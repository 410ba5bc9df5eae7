"""Nothing secret leaves the process: kinds of secrets planted everywhere, and everything that left searched."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from secret_kinds import FEW, INNOCENTS, KINDS, words_of
from trustfold.guard import ExecutionGuarantees, RedisDedupeStore, ToolGuard
from trustfold.guard.privacy import canonical, secrets_in
from trustfold.guard.testing import guard_for_tests
from trustfold.security.redaction import HIDDEN, RULES, SearchedText, redact, redact_record, redact_text
from trustfold.security.secret_patterns.names import is_secret_name
from trustfold.security.secret_patterns.shapes import SecretShape
from trustfold.security.secret_patterns.tokens import TOKENS


def places(text: str) -> dict[str, dict[str, Any]]:
    """Events with a text in the five places where agents have secrets."""
    call = {"schema_version": "1.0", "id": "1", "session_id": "s1", "call_id": "c1", "tool_name": "t"}
    started, finished = call | {"type": "tool_call.started"}, call | {"type": "tool_call.finished", "status": "error"}
    nested = json.dumps({"c": text}, ensure_ascii=False)
    return {
        "argument": started | {"args": {"note": text}},
        "nested JSON": started | {"args": {"a": [{"b": nested}]}},
        "command line": started | {"args": {"command": f"cd /tmp && {text}"}},
        "result": finished | {"result": {"output": f"before\n{text}\nafter"}},
        "error": finished | {"error": {"type": "RuntimeError", "message": f"failed: {text}"}},
    }


def test_redacted_text_is_not_redacted_again() -> None:
    """Guards, servers and recorders redact one after the other, whole records and such as were cut off."""
    for kind, (text, _) in KINDS.items():
        for place, event in places(text).items():
            for raw in (orjson.dumps(event), orjson.dumps(event)[:-1]):
                once = redact_record(raw)
                assert redact_record(once) == once, (kind, place)


def test_the_rest_of_a_value_with_a_hidden_part_is_judged() -> None:
    """A marker that a program prints inside of a secret does not shield it."""
    assert "Zx81kQ" not in redact_text("password: Zx81kQ7pLm[redacted]")
    cut = b'{"session_id":"ACME_KEY=zyxwvuts","turn":3'
    assert redact_record(redact_record(cut)) == redact_record(cut) == cut.replace(b"zyxwvuts", HIDDEN.encode())


def test_no_kind_of_secret_is_shown_in_any_place() -> None:
    """Of 700 kinds and more: those of vendors, of files, of command lines, of prose in many languages."""
    shown = [
        (kind, place)
        for kind, (text, secret) in KINDS.items()
        for place, event in places(text).items()
        if secret in plainly(redact_record(orjson.dumps(event)).decode())
    ]
    assert len(KINDS) >= 700
    assert shown == []


def plainly(text: str) -> str:
    """A text and what it reads as without one and two levels of escapes."""
    once = text.replace("\\\\", "\\").replace("\\n", "\n").replace('\\"', '"')
    return text + once + once.replace("\\\\", "\\").replace("\\n", "\n").replace('\\"', '"')


def test_innocent_texts_stay_readable_in_every_place() -> None:
    """Digests, ids, code, prices, paths, lock files: of 300 texts and more, none is changed."""
    hidden = [
        (text, place)
        for text in INNOCENTS
        for place, event in places(text).items()
        if orjson.loads(redact_record(orjson.dumps(event))) != event
    ]
    assert len(INNOCENTS) >= 300
    assert hidden == []


def test_a_text_is_shown_without_its_secret() -> None:
    """Wherever it stands in a text, quoted or not; text around it stays."""
    for text, secret in KINDS.values():
        for around in ("{}", "before {} after", 'got "{}"', "first line\n{}\nlast line"):
            shown = redact_text(around.format(text))
            assert secret not in shown, shown
            assert HIDDEN in shown
        assert redact_text("before\n" + text).startswith("before")
        value = redact({"note": text, "list": [{"deep": text}]})
        assert secret not in repr(value)


SHAPES = [(number, one) for number, one in enumerate(RULES) if isinstance(one, SecretShape)]


@given(st.sampled_from(SHAPES).flatmap(lambda rule: st.tuples(st.just(rule), words_of(rule[1].pattern))))
def test_the_quick_look_misses_nothing(drawn: tuple[tuple[int, SecretShape], bytes]) -> None:
    """A rule is tried on every text that it would hide a part of; `tests/patterns/test_needles.py` has the proof."""
    (rule, shape), word = drawn
    text = SearchedText(word)
    token = shape in TOKENS
    if any(
        (not token or re.search(rb"[0-9A-Z]", match.group())) and (shape.check is None or shape.check(match, text.raw))
        for match in shape.pattern.finditer(text.lower if shape.folded else text.raw)
    ):
        assert rule in text.rules


@pytest.mark.parametrize(
    "name",
    [
        *"password passwd api_key apiKey X-Api-Key Authorization access_token refreshToken clientSecret cookie".split(),
        *"private_key connectionString DB_PASSWORD pin otp cvv cardNumber ssn dsn sessionToken credentials".split(),
        *"signature PassWord password2 password_confirmation passwordConfirm".split(),
        *("API Key", "Pass Word", "Access Key"),
    ],
)
def test_a_telling_name_hides_its_value(name: str) -> None:
    """In any spelling, at any depth, whatever the value looks like."""
    assert is_secret_name(name)
    assert redact({"a": [{name: {"x": "plain words"}}]}) == {"a": [{name: HIDDEN}]}


@pytest.mark.parametrize(
    ("args", "secret"),
    [
        (["mysql", "--password", "Zebra42moon"], "Zebra42moon"),
        (["curl", "-u", "bob:Zebra42moon", "https://host"], "Zebra42moon"),
        (["sshpass", "-p", "Zebra42moon", "ssh", "host"], "Zebra42moon"),
        ({"Key": "password", "Value": "Zebra42moon"}, "Zebra42moon"),
    ],
)
def test_neighbours_tell_that_a_value_is_a_secret(args: Any, secret: str) -> None:
    """The words of a command, one by one; the name and the value of a setting."""
    assert secret not in str(redact({"args": args}))
    event = {"schema_version": "1.0", "id": "1", "type": "tool_call.started", "tool_name": "t", "args": {"args": args}}
    assert secret not in redact_record(orjson.dumps(event)).decode()
    harmless = ["git", "log", "--oneline", "-n", "5", "--token-count", "many words"]
    assert redact(harmless) == harmless


@pytest.mark.parametrize("name", ["max_tokens", "tokens", "token_count", "key", "monkey", "author", "compass", "spine"])
def test_an_innocent_name_hides_nothing(name: str) -> None:
    """Names that merely sound alike."""
    assert redact({name: "value"}) == {name: "value"}


@given(st.text(alphabet="abcdefghijkmnpqrstuvwxyz ", min_size=6, max_size=30).filter(lambda t: len(t.strip()) >= 6))
def test_what_was_a_secret_in_the_arguments_is_one_in_every_text(secret: str) -> None:
    """A message that repeats a password does not say that it is one."""
    known = secrets_in({"login": {"password": secret}})
    assert secret not in redact_text(f"cannot log in with {secret}!", known)


def planted(value: str) -> dict[str, Any]:
    """Arguments that hold a secret in many places."""
    return {
        "path": f"/data/{value}/x", "url": f"https://example.com/{value}", "command": f"echo {value}", "note": value,
        "password": value, "nested": {"list": [value, {"auth_token": value}]},
    }  # fmt: skip


TOOLS = ("http_request", "bash", "read_file", "mcp__server__tool", "lookup")


async def leave_traces(guard: ToolGuard, text: str, name: str) -> None:
    """Everything a platform may do with a guard and a tool, with a secret in it."""
    args = planted(text)

    async def works(**_: Any) -> dict[str, Any]:
        return {"content": text, "token": text}

    async def fails(**_: Any) -> None:
        raise RuntimeError(f"failed with {text}")

    async def answers_with_error(**_: Any) -> dict[str, Any]:
        return {"error": f"bad: {text}", "error_type": "http_error", "status_code": 500, "body": text}

    async with guard.session(f"s-{uuid4()}", guarantees=ExecutionGuarantees()) as session:
        session.user_message(text)
        with session.turn():
            session.model_text(f"I will use lookup with {text}")
        for function in (works, fails, answers_with_error):
            await session.call(name, function, args, idempotency_key=f"k-{function.__name__}")
            await session.call(name, function, args, idempotency_key=f"k-{function.__name__}")
            await session.call(name, function, args, scenario=f"do it with {text}")
        session.report_failure("lookup", f"broke on {text}", context={"what": text, "password": text})
        session.report_failure("lookup", {"error": text, "error_type": text})
        session.report_failure("lookup", ValueError(text))
        session.false_alarm("n1", f"no: {text}")
        session.end(f"because {text}")
    guard.mark_tool_failure("lookup", f"look up {text}", text)


@pytest.mark.slow
@pytest.mark.parametrize("sends", [False, True], ids=["digests", "redacted"])
async def test_nothing_secret_leaves_the_process(
    patient_redis_url: str, caplog: pytest.LogCaptureFixture, *, sends: bool
) -> None:
    """Every kind, planted in arguments, results, errors and texts: in no event, decision, log, metric or store."""
    caplog.set_level(logging.DEBUG, "trustfold.guard")
    prefix = f"trustfold-test:{uuid4()}:"
    store = RedisDedupeStore.from_url(patient_redis_url, prefix)
    guard = guard_for_tests(store=store, send_args=sends, send_errors=sends, digest_key=b"deployment")
    guard.register("lookup", read_only=True)
    left: list[bytes] = []
    keep = guard.memory.publish
    guard.memory.publish = lambda record: (keep(record), left.append(guard.memory.published[-1]))  # type: ignore[method-assign,assignment,func-returns-value]
    for number, (text, _) in enumerate(FEW.values()):
        await leave_traces(guard, text, TOOLS[number % len(TOOLS)])
        left += [part for output in guard.memory.outputs for part in (output.key.encode(), output.value or b"")]
        guard.memory.outputs.clear()  # it keeps but the newest; here each is searched, and once
    names = [key async for key in store._client.scan_iter(f"{prefix}*")]
    left += [repr((key, await store._client.hgetall(key))).encode() for key in names]
    left += [caplog.text.encode(), guard.metrics.text().encode()]
    await guard.close()
    assert len(left) > 20 * len(FEW)
    assert guard.publisher.lost == 0
    everything = b"\n".join(left).decode(errors="replace")
    everything += "\n" + everything.replace("\\n", "\n").replace("\\\\", "\\")
    leaked = {kind: _around(everything, secret) for kind, (_, secret) in FEW.items() if secret in everything}
    assert leaked == {}


def _around(text: str, secret: str) -> str:
    at = text.find(secret)
    return text[max(0, at - 150) : at + len(secret) + 50]


async def test_by_default_no_argument_text_or_message_leaves_at_all() -> None:
    """Not only secrets: what a call was about stays here, except for the key that it counts under."""
    guard = guard_for_tests()

    async def fails(**_: Any) -> None:
        raise RuntimeError("the grapefruit was rotten")

    async with guard.session("s1") as session:
        session.model_text("Let me peel the pomegranate with lookup")
        await session.call("lookup", fails, {"fruit": "tangerine"})
    left = b"".join(guard.memory.published).decode()
    for word in ("grapefruit", "pomegranate", "tangerine"):
        assert word not in left
    events = [orjson.loads(value) for value in guard.memory.published]
    text = next(event for event in events if event["type"] == "model.text")
    assert text["announces"] is True


def test_arguments_that_are_no_json_have_a_digest_all_the_same() -> None:
    """Whatever the order of their names; what can only be shown is digested as it shows itself."""
    path, numbers = Path("/a"), {2: Path("/b"), 1: "x"}
    assert canonical({"path": path, "by": numbers}) == canonical({"by": dict(reversed(numbers.items())), "path": path})
    assert orjson.loads(canonical({"path": path, "by": numbers})) == {
        "by": {"1": "x", "2": repr(Path("/b"))}, "path": repr(path),
    }  # fmt: skip
    endless: list[Any] = []
    endless.append(endless)
    assert canonical(endless) == b"[[...]]"

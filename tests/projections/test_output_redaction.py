"""What the folds write holds no secret of a publisher that is no guard, though they fold its events as they are."""

from __future__ import annotations

import re
from base64 import b64decode

import msgspec
import orjson
import pytest
from fixed_rules import Rules
from hypothesis import given
from hypothesis import strategies as st
from planted_secrets import events_with, found_in, lines_of_all_kinds
from secret_kinds import FEW, KINDS, words_of
from trustfold.projections import output_redaction
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.schemas.examples import EXAMPLES
from trustfold.security.redaction import redact_text
from trustfold.security.secret_patterns.structures import STRUCTURES
from trustfold.security.secret_patterns.tokens import TOKENS


def outputs_of(lines: list[bytes]) -> list[StageOutput]:
    """Everything that a worker writes for events that nobody has redacted, except to the topic `events`."""
    return [output for output in LocalTopology(Rules()).feed("events", lines) if output.topic != "events"]


def everything_of(outputs: list[StageOutput]) -> bytes:
    """Keys, ids, and values."""
    return b"\n".join(b"%b %b %b" % (one.key.encode(), one.id.encode(), one.value or b"") for one in outputs)


@pytest.mark.slow
def test_no_output_of_the_folds_holds_a_secret() -> None:
    """Every kind, in fields of every type of event: not in decisions, states, outcomes, dead letters, nor in keys."""
    outputs = outputs_of(lines_of_all_kinds(every=8))
    assert {"outcomes", "standings", "nudges", "suggestions", "state", "dead-letters"} <= {one.topic for one in outputs}
    assert found_in(everything_of(outputs)) == {}


def test_what_was_looked_at_before_changes_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folded again, with texts remembered from before or with none, the log gives the same bytes."""
    lines = [
        line for number, kind in enumerate(list(KINDS)[:12]) for line in events_with(KINDS[kind][0], number, every=8)
    ]
    warm = outputs_of(lines)
    monkeypatch.setattr(output_redaction, "_known", set())
    monkeypatch.setattr(output_redaction, "MAX_KNOWN", 3)
    assert outputs_of(lines) == warm


def test_sessions_and_workspaces_that_hold_a_secret_stay_apart() -> None:
    """Their ids become digests, in keys and in values, and the key names the same as its value."""
    lines = [
        orjson.dumps(
            EXAMPLES["tool_call.finished"]
            | {"id": f"e{number}", "call_id": f"c{number}", "workspace_id": f"ghp_{name * 12}", "status": "error"}
        )
        for number, name in enumerate(("aB3", "aB4"))
    ]
    outcomes = [one for one in outputs_of(lines) if one.topic == "outcomes"]
    keys = {one.key for one in outcomes}
    for one in outcomes:
        value = orjson.loads(one.value or b"")
        assert one.key == f"{value['workspace_id']}\x1f{value['scope']}"
        assert value["workspace_id"].startswith("[redacted:")
    assert len({key.partition("\x1f")[0] for key in keys}) == 2


def test_a_dead_letter_that_is_no_text_holds_no_secret_in_base64() -> None:
    """Bytes that are no UTF-8 are redacted before they are written in base64."""
    letter = orjson.loads(outputs_of([b'\xff "password": "hunter22-hunter22"'])[0].value or b"")
    assert b"hunter22" not in b64decode(letter["value_base64"])


@given(
    word=st.sampled_from(["", "call_", "x-"]),
    secret=st.sampled_from([*STRUCTURES, *TOKENS]).flatmap(lambda shape: words_of(shape.pattern)),
)
def test_no_secret_passes_for_a_plain_id(word: str, secret: bytes) -> None:
    """What is taken for an id without a look at all patterns holds nothing that redaction would hide."""
    token = secret.decode(errors="replace")
    cut = re.sub(r"[^A-Za-z0-9_-]", "", token)
    for text in (word + token, word + cut):
        assert not output_redaction.is_plain_id(text) or redact_text(text) == text, text


@given(st.one_of(st.uuids().map(str), st.from_regex(r"(call|toolu|evt)_[A-Za-z0-9]{4,24}", fullmatch=True)))
def test_ids_as_publishers_make_them_need_no_redaction(text: str) -> None:
    """The quick look and the full one agree."""
    assert not output_redaction.is_plain_id(text) or redact_text(text) == text


def test_no_kind_of_secret_passes_for_a_plain_id() -> None:
    """Alone, and behind a word."""
    for whole, secret in KINDS.values():
        for text in (whole, f"call_{whole}", secret):
            assert not output_redaction.is_plain_id(text) or redact_text(text) == text, text


@pytest.mark.parametrize(
    ("key", "secret"), [("bash|command=a\\|b", False), (f"bash|command=\\{KINDS['github token'][0]}", True)]
)
def test_an_escape_in_a_key_is_no_secret_and_hides_none(key: str, secret: bool) -> None:
    """What is escaped is looked at as it was before."""

    class Keyed(msgspec.Struct):
        scope: str
        key: str

    assert output_redaction.holds_secret(Keyed("tool:bash", key)) is secret


@pytest.mark.parametrize(
    "neighbour", ["all is well, said", "password=", "x --token", "it's", "Authorization:", "card 4111 1111", "a \\"]
)
def test_a_secret_is_found_among_its_neighbours(neighbour: str) -> None:
    """Texts that are searched together hide no secret of each other, whatever one ends or begins with."""
    for kind, (text, _) in FEW.items():
        for texts in ([neighbour, text], [text, neighbour], [(neighbour, text, neighbour)]):
            assert redact_text(text) == text or not output_redaction._are_clean_together(texts), kind

"""Texts that made the product stand still are redacted, classified and folded in no time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import orjson
import pytest
from secret_kinds import KINDS
from trustfold.ingest.results import by_exit_code, failed, without_hook_context
from trustfold.projections.calls import command_line, destruction
from trustfold.projections.calls.shell import simple_commands
from trustfold.security import redaction
from trustfold.security.redaction import (
    HIDDEN,
    MAX_BYTES,
    NeedleSearch,
    redact,
    redact_bytes,
    redact_record,
    redact_text,
    secret_spans,
)
from trustfold.security.secret_patterns.names import LONGEST_NAME

LIMIT_SECONDS = 3
"""Processor time for 60 KB: these texts took 3 to 20 s each, and take milliseconds."""

CHAINS: dict[str, Callable[[int], str]] = {
    "password in SQL": lambda n: "password for x" + " " * n,
    "user of curl": lambda n: "curl -u" + "=" * n,
    "Firebase": lambda n: "a" * n + ":APA91b",
    "backslashes": lambda n: "password" + "\\" * n + ":",
    "quotes in JSON in JSON": lambda n: 'password=\\"' + "\\x" * (n // 2),
    "Airtable": lambda n: "key1_" * (n // 5) + " Aa1",
    "GoCardless": lambda n: "live_" * (n // 5) + "A",
    "Fireworks": lambda n: "fw_" * (n // 3) + "A",
    "Resend": lambda n: "re_" * (n // 3) + "A",
    "JWT": lambda n: "eyJ" + "-eyJaaaaaa" * (n // 10),
    "cookie": lambda n: "cookie:a" * (n // 8),
    "MySQL": lambda n: "mysql " * (n // 6) + "; -",
    "auth=": lambda n: "auth=" * (n // 5),
    "key=": lambda n: "key=" * (n // 4),
    "columns": lambda n: "password,x\n" * (n // 11),
    "columns in one line": lambda n: "token," * (n // 6) + "\nx",
    "rows": lambda n: "password,x\n" + "a1b2c,d\n" * (n // 8),
    "inserted rows": lambda n: "insert into t (password) values " + "('a1b2c')," * (n // 10),
    "inserts": lambda n: "insert into t (" * (n // 15),
    "bytes": lambda n: "[1," * (n // 3),
    "pop": lambda n: "USER a " * (n // 7) + "PASS ",
    "vault": lambda n: "$ANSIBLE_VAULT;1.1;AES256\n" * (n // 26),
    "sess_id=": lambda n: "sess_id=" * (n // 8),
    "pin:": lambda n: "pin:" * (n // 4),
    "columns after secrets": lambda n: "\n".join(text for text, _ in KINDS.values())[: n // 2] + "token " * (n // 12),
}
"""By the pattern that read each text again and again; 60 KB in one event, 45 KB in a file, 400 KB in a record."""


def _seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def test_a_text_is_searched_once_however_many_rules_hide_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search of 60 KB that is full of needles takes milliseconds; some 180 rules hide something in this text."""
    searched: list[int] = []
    find = NeedleSearch.find
    monkeypatch.setattr(NeedleSearch, "find", lambda self, text: searched.append(len(text)) or find(self, text))
    text = "\n".join(text for text, _ in KINDS.values()).encode()
    redaction._without_shapes(text)
    assert sum(searched) < 2 * len(text)


def test_only_so_many_values_after_labels_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """One takes some microseconds; no text that people or programs write has as many. The rest is hidden."""
    judged: list[int] = []
    judge = redaction.labelled_secret
    monkeypatch.setattr(redaction, "labelled_secret", lambda *args: judged.append(1) or judge(*args))
    text = "pin:" * 15_000
    shown = redact_text(text)
    assert len(judged) == redaction.SOME_VALUES + len(text) // redaction.BYTES_OF_VALUE
    assert shown.startswith("pin:pin:")
    assert shown.endswith(HIDDEN)
    assert redact_text("key: a, " * 60 + "x") == "key: a, " * 60 + "x"


@pytest.mark.parametrize("kind", CHAINS)
def test_a_chain_of_beginnings_is_redacted_at_once(kind: str) -> None:
    """As a text, in a record, and where the guard looks for secrets in arguments."""
    text = CHAINS[kind](60_000)
    record = orjson.dumps({"type": "tool_call.started", "args": {"command": text}})
    assert _seconds(lambda: redact_text(text)) < LIMIT_SECONDS
    assert _seconds(lambda: redact_record(record)) < LIMIT_SECONDS
    assert _seconds(lambda: secret_spans(text)) < LIMIT_SECONDS


def test_a_failed_command_with_blanks_is_read_at_once() -> None:
    """The end of an error type, of a wrapped output and of a hook's context is not looked for at each blank or line."""
    assert _seconds(lambda: failed("Error" + " " * 60_000 + "x")) < LIMIT_SECONDS
    assert _seconds(lambda: by_exit_code("Output: \n" * 10_000, 1)) < LIMIT_SECONDS
    assert _seconds(lambda: without_hook_context("<hook_context>" * 10_000)) < LIMIT_SECONDS


def test_a_line_with_blanks_at_its_end_is_read_at_once() -> None:
    """The reader of shell lines takes blanks before a token once."""
    assert [command.words for command in simple_commands("ls -l" + " " * 100_000)] == [("ls", "-l")]
    assert _seconds(lambda: simple_commands("ls \\ " + " " * 200_000)) < LIMIT_SECONDS


LINES = ("$(x", "```\n``", "run(`x", "rm_r(e", "push x", "curl: (x", "rm -r / {x" + "," * 50_000 + "}")
"""Parts of lines with thousands of commands, of which each was judged by the whole line, and with as many choices."""


@pytest.mark.parametrize("part", LINES, ids=lambda part: part[:8])
def test_a_line_of_many_commands_is_read_at_once(part: str) -> None:
    """The whole line is looked through once, not once for each of its commands; of choices few are tried."""
    assert _seconds(lambda: command_line.read(part * (60_000 // len(part) or 1))) < LIMIT_SECONDS


class _Searches:
    """Expression that notes which part of a text each of its searches read."""

    def __init__(self, expression: str) -> None:
        self._pattern = re.compile(expression)
        self.spans: list[tuple[int, int]] = []

    def search(self, text: str, start: int, end: int) -> re.Match[str] | None:
        self.spans.append((start, end))
        return self._pattern.search(text, start, end)


def test_no_search_that_looks_far_ahead_reads_more_than_a_piece() -> None:
    """While `re` searches, nothing else runs: so long texts are searched in pieces, which share enough for a match."""
    far = _Searches(r"push[^\n]{0,200}? --force")
    line = "x" * 10_000 + "push" + "y" * 200 + " --force"
    for begin in range(3_000):
        assert destruction.occurs(far, line[begin:])  # type: ignore[arg-type] # searches as an expression
    assert max(end - start for start, end in far.spans) < 3_000
    assert not destruction.occurs(far, "x" * 60_000)  # type: ignore[arg-type] # as above
    assert destruction.occurs(re.compile(r"\A\Z"), "")


def test_a_name_that_is_none_is_not_read() -> None:
    """What stands behind a name that is longer than any is hidden."""
    assert list(redact({"x" * (LONGEST_NAME + 1): "v"}).values()) == [HIDDEN]
    assert list(redact({"x" * LONGEST_NAME: "v"}).values()) == ["v"]


def test_a_long_value_after_a_label_is_hidden_whole() -> None:
    """It is judged by its beginning."""
    assert redact_text("password=" + "aB3" * 1_000 + " next") == f"password={HIDDEN} next"
    assert redact_text("auth=auth=" + "aB3" * 1_000 + "; next").endswith("; next")
    assert "aB3" not in redact_text("auth=auth=" + "aB3" * 1_000 + "; next")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("re_utils.load re_9f8e7d6c5b4a39281706f5e4", f"re_utils.load {HIDDEN}"),
        ("fw_some_long_name_without_numbers", "fw_some_long_name_without_numbers"),
        ("e2b_some_long_name_without_numbers", "e2b_some_long_name_without_numbers"),
        ("eyJhbGciOiJIUzI1NiJ9 eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", f"eyJhbGciOiJIUzI1NiJ9 {HIDDEN}"),
        ("password for root   =   'hunter2'", f"password for root   =   '{HIDDEN}'"),
        ("password for root 'hunter2'", f"password for root '{HIDDEN}'"),
        ('x\\n10:30 JSON: {\\"password\\": \\"hunter2\\\\x\\", \\"a\\": 1}', None),
    ],
)
def test_secrets_are_found_as_before(text: str, shown: str | None) -> None:
    """Expressions that were written anew for their speed."""
    if shown is None:
        assert "hunter2" not in redact_text(text)
        assert '\\"a\\": 1' in redact_text(text)
    else:
        assert redact_text(text) == shown


def test_what_exceeds_the_budget_is_hidden() -> None:
    """A text of more than a megabyte is neither read nor passed; its neighbours are."""
    long = "x" * (MAX_BYTES + 1)
    assert redact_text(long) == HIDDEN
    assert redact_bytes(long.encode()) == HIDDEN.encode()
    record = orjson.dumps({"type": "tool_call.started", "args": {"content": long, "path": "a.txt"}})
    assert orjson.loads(redact_record(record))["args"] == {"content": HIDDEN, "path": "a.txt"}

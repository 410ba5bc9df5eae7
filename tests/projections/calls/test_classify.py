"""Failure classification, class of tools, dangerous commands (docs/design/semantics.md#failure-classification)."""

from __future__ import annotations

from math import nan
from time import process_time
from typing import Any

import msgspec
import orjson
import pytest
from story import Story
from trustfold.projections.calls import classify as classification
from trustfold.projections.calls import command_line, error_words, tool_class
from trustfold.projections.calls.classify import RawFailure, classify, failure_in_result
from trustfold.projections.calls.error_words import neutral_reason
from trustfold.projections.calls.fingerprints import call_fingerprint, canonical, result_fingerprint
from trustfold.schemas.events import json_of
from trustfold.schemas.vocabulary import FailureSeverity, ToolClass


@pytest.mark.parametrize(
    ("failure", "severity"),
    [
        (RawFailure(http_status=401), "permission"),
        (RawFailure(http_status=404), "not_found"),
        (RawFailure(http_status=410), "not_found"),
        (RawFailure(http_status=408), "timeout"),
        (RawFailure(http_status=504), "timeout"),
        (RawFailure(http_status=409), "transient"),
        (RawFailure(http_status=429), "transient"),
        (RawFailure(http_status=400), "invalid_input"),
        (RawFailure(http_status=422), "invalid_input"),
        (RawFailure(http_status=418), "validation"),
        (RawFailure(http_status=502), "server_error"),
        (RawFailure(type="TimeoutError"), "timeout"),
        (RawFailure(type="httpx.ReadTimeout"), "timeout"),
        (RawFailure(type="ECONNRESET"), "transient"),
        (RawFailure(code="ENOTFOUND"), "transient"),
        (RawFailure(type="PermissionError"), "permission"),
        (RawFailure(type="FileNotFoundError"), "not_found"),
        (RawFailure(type="pydantic.ValidationError"), "invalid_input"),
        (RawFailure(type="MemoryError"), "crash"),
        (RawFailure(code="137"), "crash"),
        (RawFailure(type="exit_code_139"), "crash"),
        (RawFailure(type="exit_code_-9"), "crash"),
        (RawFailure(type="UnicodeDecodeError"), "corruption"),
        (RawFailure(message="No such file or directory"), "not_found"),
        (RawFailure(message="Permission denied"), "permission"),
        (RawFailure(message="Request timed out"), "timeout"),
        (RawFailure(message="429 Too Many Requests"), "transient"),
        (RawFailure(message="read ECONNRESET"), "transient"),
        (RawFailure(message="getaddrinfo ENOTFOUND api.example.com"), "transient"),
        (RawFailure(message="connect ETIMEDOUT 10.0.0.1:443"), "timeout"),
        (RawFailure(message="Temporary failure in name resolution"), "transient"),
        (RawFailure(message="Service unavailable"), "transient"),
        (RawFailure(message="Invalid parameter: foo is required"), "invalid_input"),
        (RawFailure(message="missing security header"), "invalid_input"),
        (RawFailure(message="segfault in worker"), "crash"),
        (RawFailure(message="checksum mismatch"), "corruption"),
        (RawFailure(message="unexpected server crash"), "crash"),
        (RawFailure(message="an unexpected thing"), "validation"),
        (RawFailure(message="disk quota exceeded"), "server_error"),
        (RawFailure(message="SQL injection test failed"), "validation"),
        (RawFailure(), "server_error"),
    ],
)
def test_what_is_reported_decides_the_severity(failure: RawFailure, severity: str) -> None:
    """HTTP status, then type and code, then phrases on word boundaries, then server_error."""
    assert classify(failure, status="error", dangerous=False) == severity


def test_first_match_wins() -> None:
    """The reporter before danger, danger before status, status before HTTP."""
    failure = RawFailure(http_status=404)
    assert (
        classify(failure, status="timeout", dangerous=True, override=FailureSeverity.TRANSIENT)
        is FailureSeverity.TRANSIENT
    )
    assert classify(failure, status="timeout", dangerous=True) is FailureSeverity.SECURITY
    assert classify(failure, status="timeout", dangerous=False) is FailureSeverity.TIMEOUT
    assert classify(failure, status="error", dangerous=False) is FailureSeverity.NOT_FOUND


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ({"error": "x"}, True),
        ({"error": {"message": "x", "type": "T"}}, True),
        ({"error": None}, False),
        ({"error": ""}, False),
        ({"status_code": 500, "body": "x"}, True),
        ({"status_code": 200}, False),
        ({"isError": True, "content": []}, True),
        ({"isError": False}, False),
        ({"exit_code": 1}, True),
        ({"exitCode": 0}, False),
        ({"data": None, "errors": [{"message": "Cannot query field"}]}, True),
        ({"data": {"user": 1}, "errors": [{"message": "one field is missing"}]}, False),
        ({"errors": [{"message": "of a linter"}]}, False),
        ({"status": "error", "message": "535 5.7.8 Authentication credentials invalid"}, True),
        ({"status": "error", "message": "step 3", "id": 7, "name": "build", "branch": "main"}, False),
        ({"status": "success", "message": "sent"}, False),
        ({"code": 40101, "message": "令牌已过期", "trace_id": "1"}, True),
        ({"code": 0, "msg": "ok"}, False),
        (["error"], False),
        ("error", False),
        (None, False),
    ],
)
def test_a_result_may_report_a_failure(result: Any, failed: bool) -> None:
    """Only what is truthy, a status of 400 or more, MCP's flag, exit codes, and usual answers without data."""
    assert (failure_in_result(result) is not None) is failed


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("user_rejected", "denied"), ("sibling_error", "cancelled"), ("AbortError", "cancelled"), ("ValueError", "")],
)
def test_refusals_and_cancellations_are_neutral(kind: str, reason: str) -> None:
    """They say nothing about the tool."""
    assert neutral_reason(kind) == reason


@pytest.mark.parametrize(
    ("command", "message", "severity"),
    [
        ("eval x", "Security violation: malicious command detected", "security"),
        ("sudo tail /var/log/auth.log", "refused by security policy", "security"),
        ("cat /root/.ssh/id_rsa", "possible privilege escalation", "security"),
        ("eval x", "x: command not found", "not_found"),
        ("npm test", "SQL injection test failed", "validation"),
        ("git log", "security violation", "validation"),
    ],
)
def test_suspect_commands_need_a_word_of_security(command: str, message: str, severity: str) -> None:
    """Neither the wording nor the command blocks anything by itself; both together do."""
    story = Story().fails("bash", {"command": command}, with_="", message=message)
    told = [orjson.loads(output.value or b"{}") for output in story.outputs if output.topic == "outcomes"]
    assert told[0]["severity"] == severity


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        ("readFile", ToolClass.READ),
        ("Grep", ToolClass.READ),
        ("get_reservation_details", ToolClass.READ),
        ("mcp__github__list_issues", ToolClass.READ),
        ("writeFile", ToolClass.ACTION),
        ("MultiEdit", ToolClass.ACTION),
        ("update_reservation_flights", ToolClass.ACTION),
        ("list_tools", ToolClass.INTROSPECTION),
        ("get_tool_schemas", ToolClass.INTROSPECTION),
        ("askPermission", ToolClass.INTROSPECTION),
        ("TodoWrite", ToolClass.PLANNING),
        ("update_plan", ToolClass.PLANNING),
        ("BashOutput", ToolClass.POLL),
        ("wait_for_job", ToolClass.POLL),
        ("get_terminal_output", ToolClass.POLL),
        ("AgentOutputTool", ToolClass.POLL),
        ("read_bash", ToolClass.POLL),
        ("search_replace", ToolClass.ACTION),
        ("findAndReplace", ToolClass.ACTION),
        ("get_or_create_file", ToolClass.ACTION),
        ("search_and_fetch", ToolClass.READ),
        ("view_and_fix", ToolClass.UNKNOWN),
        ("get_output_file", ToolClass.READ),
        ("frobnicate", ToolClass.UNKNOWN),
        ("Task", ToolClass.UNKNOWN),
    ],
)
def test_names_suggest_a_class(tool: str, found: ToolClass) -> None:
    """What a name does not say stays unknown."""
    assert tool_class.class_by_name(tool) is found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ls -la", ToolClass.READ),
        ("cd x && git status --short | head", ToolClass.READ),
        ("cat a > b", ToolClass.ACTION),
        ("sed -i s/a/b/ f", ToolClass.ACTION),
        ("sed -n 1p f", ToolClass.READ),
        ('psql -h db -tAc "SELECT count(*) FROM t"', ToolClass.READ),
        ('sqlite3 a.db "select 1; delete from t"', ToolClass.ACTION),
        ('mysql -u root --execute="show tables"', ToolClass.READ),
        ("psql -f migration.sql", ToolClass.UNKNOWN),
        ('psql -c "vacuum full"', ToolClass.UNKNOWN),
        ("git add f && git status && git commit -m p", ToolClass.ACTION),
        ("pytest -q", ToolClass.UNKNOWN),
        ("ls && ./deploy.sh", ToolClass.UNKNOWN),
        ("find . -name x -delete", ToolClass.ACTION),
        ("sleep 5", ToolClass.POLL),
        ("", ToolClass.UNKNOWN),
        ("gh pr list", ToolClass.READ),
        ("gh pr create", ToolClass.ACTION),
        ("yq .a f.yaml", ToolClass.READ),
        ("yq -i .a=1 f.yaml", ToolClass.ACTION),
        ("gawk -i inplace 1 f", ToolClass.ACTION),
        ("sort -o f f", ToolClass.ACTION),
        ("git branch -a", ToolClass.READ),
        ("git branch -D old", ToolClass.ACTION),
        ("git remote -v", ToolClass.READ),
        ("git remote set-url origin u", ToolClass.ACTION),
        ("kubectl rollout restart deploy/web", ToolClass.UNKNOWN),
    ],
)
def test_shell_calls_are_judged_by_their_commands(line: str, found: ToolClass) -> None:
    """Reads only where every command reads; one that acts makes the call an action."""
    assert command_line.read(line).tool_class is found


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("kubectl rollout status deploy/web --timeout=60s", True),
        ("kubectl rollout restart deploy/web", False),
        ("timeout 20 docker compose logs -f web", True),
        ("docker compose -f dev.yml ps", False),
        ("aws cloudformation wait stack-create-complete --stack-name x", True),
        ("tail -f app.log", True),
        ("tail -3 app.log", False),
        ("python3 - <<'PY'\nimport time\ntime.sleep(30)\nprint(open('s').read())\nPY", True),
        ("python3 -c 'import time; time.sleep(0.1)'", False),
        ("cat > poll.py <<'PY'\ntime.sleep(30)\nPY", False),
    ],
)
def test_lines_that_wait_are_known(line: str, waits: bool) -> None:
    """Programs have their own words for waiting."""
    assert command_line.read(line).waits is waits


@pytest.mark.parametrize(
    "line",
    [
        "make check",
        "make check 2>&1",
        "make check | tail -20",
        "make check 2>&1 | tail -n 5",
        "  make check 2>&1 | head -50 | cat",
    ],
)
def test_what_is_shown_of_the_output_is_no_other_request(line: str) -> None:
    """Redirections and pipes that show more or less of it are left out."""
    assert command_line.without_display(line) == "make check"


def test_what_a_pipe_makes_of_the_output_is_another_request() -> None:
    """A filter asks something else, and so does another file; only the length of a sleep is left out."""
    for line in (
        "make | grep error",
        "true || cat",
        "tail -5 a.log",
        "make | tail -f",
        'rg "a|cat"',
        "timeout 60 make",
    ):
        assert command_line.without_display(line) == line
    assert command_line.without_display("sleep 30; curl x") == command_line.without_display("sleep 5; curl x")


def test_annotations_declare_a_class() -> None:
    """ReadOnlyHint and destructiveHint, as MCP names them."""
    assert tool_class.class_by_annotations({"readOnlyHint": True}) is ToolClass.READ
    assert tool_class.class_by_annotations({"destructiveHint": True}) is ToolClass.ACTION
    assert tool_class.class_by_annotations({"title": "x"}) is None


def test_fingerprints_ignore_key_order_and_volatile_fields() -> None:
    """Canonical JSON, and results without their pid and duration."""
    assert call_fingerprint("t", canonical({"a": 1, "b": 2})) == call_fingerprint("t", canonical({"b": 2, "a": 1}))
    one, other = {"out": "x", "pid": 1, "duration_ms": 5}, {"duration_ms": 9, "pid": 2, "out": "x"}
    assert result_fingerprint(b"", one) == result_fingerprint(b"", other)
    assert result_fingerprint(b"", one) != result_fingerprint(b"", {"out": "y"})
    page, next_page = {"items": [1], "next_cursor": "p2"}, {"items": [1], "next_cursor": "p3"}
    assert result_fingerprint(b"", page) == result_fingerprint(b"", next_page)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 5000, "9" * 30, "NaN"])
@pytest.mark.parametrize("field", ["status_code", "exit_code", "http_status"])
def test_numbers_that_no_status_can_be_are_none(field: str, number: str) -> None:
    """A result is any JSON; numbers beyond double precision stand in it as infinity."""
    failure = failure_in_result({field: json_of(msgspec.Raw(number.encode()))} if number != "NaN" else {field: nan})
    assert failure is None or failure.type == ""


def test_an_exit_code_of_any_length_is_read() -> None:
    """What is too long to be one is no code."""
    assert classify(RawFailure(type="exit_code_" + "1" * 5000), status="error", dangerous=False) == "server_error"


@pytest.mark.parametrize(("told", "status"), [(399, None), (400, 400), (599, 599), (600, None)])
def test_a_number_in_an_error_is_an_http_status_where_http_has_such_errors(told: int, status: int | None) -> None:
    """Servers of other protocols number their errors, too."""
    failure = failure_in_result({"error": {"message": "no", "status": told}})
    assert failure is not None
    assert failure.http_status == status


@pytest.mark.parametrize(
    "message",
    ["said code 429", "got http 429", "with status 429", "an error 429", "<h1>429</h1>", "429 too many", "x: 429"],
)
def test_a_message_names_an_http_status(message: str) -> None:
    """In the ways in which clients and servers write it."""
    assert classify(RawFailure(message=message), status="error", dangerous=False) == "transient"


@pytest.mark.parametrize(("length", "reason"), [(256, "cancelled"), (257, "")])
def test_the_longest_error_type(length: int, reason: str) -> None:
    """Anything longer is text, in which nothing is read."""
    assert neutral_reason("my." + "n" * (length - 14) + ".AbortError") == reason


@pytest.mark.parametrize(("lines", "severity"), [(2, "permission"), (3, "validation")])
def test_a_commands_last_lines_say_why_it_failed(lines: int, severity: str) -> None:
    """What stands above the last three lines was said on the way."""
    failure = RawFailure(type="exit_code_1", message="open: permission denied" + "\nmore" * lines)
    assert classify(failure, status="error", dangerous=False, runs="shell", command="make") == severity


@pytest.mark.parametrize("line", ["a" * 1990 + "(){" + "a" * 1990, "(" * 1990 + "(){" + "(" * 1990, "a(){" * 1000])
def test_a_command_line_is_read_in_time_that_grows_with_its_length(line: str) -> None:
    """The look for fork bombs goes back and forth within a name and a short body only."""
    took = []
    for blanks in range(5):  # other work of the process, such as a collection of garbage, can fall into one of them
        begun = process_time()
        assert command_line.read(line + " " * blanks).danger.kind is None
        took.append(process_time() - begun)
    assert min(took) < 0.5


def test_texts_in_place_of_error_types_are_not_kept() -> None:
    """A publisher may put anything where a type belongs; caches hold short words only."""
    text = "It went wrong. " * 1000
    assert classify(RawFailure(type=text, code=text), status="error", dangerous=False) == "server_error"
    assert neutral_reason(text) == ""
    before = [cached.cache_info().currsize for cached in (classification.by_type, error_words._neutral_reason)]
    classify(RawFailure(type=text + "1", code=text + "1"), status="error", dangerous=False)
    neutral_reason(text + "1")
    assert [cached.cache_info().currsize for cached in (classification.by_type, error_words._neutral_reason)] == before

"""Guard and worker agree: on the key of a call, and on how bad a failure is."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import uuid
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trustfold.errors import ConfigError
from trustfold.guard.failure import of_exception, of_result
from trustfold.guard.request import GuardedCall
from trustfold.guard.settings import GuardSettings
from trustfold.guard.testing import guard_for_tests, set_state
from trustfold.guard.tools import ToolRegistration
from trustfold.projections.session.calls import describe
from trustfold.projections.session.verdicts import judge
from trustfold.rules.calls import CallRules, DangerRules, ToolRules
from trustfold.rules.rules import RuleSet
from trustfold.schemas.events import ErrorInfo, ToolCallFinished, ToolCallStarted
from trustfold.schemas.vocabulary import CallStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAMILIES = {"lab_*": "shell", "grab": "http", "read_file": "directory", "mcp__lab__run": "code"}


class Place(enum.Enum):
    """A path that is no text."""

    HOME = "/home/ann/notes.txt"
    WEB = "https://api.example.com/v1/x"


class Word(str):  # noqa: SLOT000 - as programs have them
    """A text of its own class."""


class Root(enum.StrEnum):
    """A path that is a text."""

    ROOT = "/srv/root/x.txt"


@dataclasses.dataclass
class Where:
    """An object."""

    path: str = "/a/b"


texts = st.sampled_from(
    [
        "/srv/data/a.txt", "https://api.example.com/v1/users", "rm -rf /tmp/x", "ls -l", "", "a=b|c", "https://x:y@h/p",
        "https://ann:s3cr3t-Pa55@api.example.com/v1/users?token=abcDEF123456", "PGPASSWORD=s3cr3t psql -h db",
        "/srv/ghp_abcDEF123abcDEF123abcDEF123/x.txt", "curl -H Authorization: Bearer abcDEF123 x && rm -rf /tmp/x",
        "https://hooks.slack.com/services/T00000000/B00000000/abcDEF123abcDEF123",
        f"/srv/{'d/' * 90}password=s3cr3t9/x",
        f"https://example.com/{'p' * 4090}?token=abcDEF123456", "ghp_abcDEF123abcDEF123abcDEF123 --x; rm -r /",
    ]
)  # fmt: skip
values = st.one_of(
    texts,
    texts.map(Word),
    st.sampled_from([*Place, *Root]),
    texts.map(PurePosixPath),
    st.just(uuid.UUID(int=7)),
    st.builds(Where),
    st.lists(texts, max_size=3),
    st.lists(texts, max_size=3).map(tuple),
    st.none() | st.booleans() | st.integers() | st.just(4111111111111111) | st.floats() | st.binary(max_size=4),
)
shapes = st.dictionaries(
    st.sampled_from("path file_path url urls command cmd commands cwd _mcp_server".split()), values, max_size=3
)
names = st.sampled_from("read_file fetch bash grep lookup lab_run grab mcp__files__read mcp__lab__run python".split())


def started_by(guard: Any) -> ToolCallStarted:
    """The start that the guard has published."""
    found = [raw for raw in guard.memory.published if b'"tool_call.started"' in raw]
    return msgspec.json.decode(found[-1], type=ToolCallStarted)


@pytest.mark.parametrize("send_args", [False, True])
@given(name=names, args=shapes, families=st.sampled_from([{}, FAMILIES]))
def test_a_check_sees_the_key_of_the_calls_event(
    send_args: bool, name: str, args: dict[str, Any], families: dict[str, Any]
) -> None:
    """For every shape of arguments, with the shipped rules and with configured families."""
    noted = DangerRules(**dict.fromkeys(DangerRules.__struct_fields__, "observe"))  # type: ignore[arg-type]
    rules = RuleSet(tools=ToolRules(families=families), calls=CallRules(danger=noted))
    guard = guard_for_tests(rules=rules, send_args=send_args)

    async def tool(**_: Any) -> str:
        return "done"

    asyncio.run(guard.call(name, tool, args, session_id="s"))
    event = started_by(guard)
    key = describe(event, 0, rules).fine_key
    set_state(guard, "trust", key, state="blocked")
    assert guard.check(name, args, session_id="s").code == "blocked"
    assert guard.trust_of(name, args) is not None


def test_families_come_from_the_workers_file_of_rules(tmp_path: Path) -> None:
    """From `TRUSTFOLD_RULES` where the program gives none; a file that is none is refused by its name."""
    file = tmp_path / "rules.toml"
    file.write_text('[tools.families]\n"lab_*" = "shell"\n')
    assert GuardSettings.from_env({"TRUSTFOLD_RULES": str(file)}).families == {"lab_*": "shell"}
    assert GuardSettings.from_env({"TRUSTFOLD_RULES": str(file)}, families={}).families == {}
    missing = str(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="TRUSTFOLD_RULES"):
        GuardSettings.from_env({"TRUSTFOLD_RULES": missing})
    assert not GuardSettings.from_env({"TRUSTFOLD_RULES": missing, "TRUSTFOLD_ENABLED": "false"}).enabled
    with pytest.raises(ConfigError, match="spaceship"):
        GuardSettings(families={"x": "spaceship"})


RAISED = [
    TimeoutError("Timeout 30000ms exceeded, waiting for locator('#send')"),
    TimeoutError("no answer"),
    ConnectionResetError("gone"),
    PermissionError("no"),
    FileNotFoundError("no such file"),
    ValueError("2 is too many"),
    RuntimeError("Traceback (most recent call last): KeyError: 'a'"),
    RuntimeError("command timed out after 30 s"),
    RuntimeError("exit code: 137"),
    RuntimeError("the user refused to permit this"),
    RuntimeError("The user doesn't want to proceed with this tool use."),
    RuntimeError("security policy violation: exploit found"),
    RuntimeError("bash: foo: command not found"),
    RuntimeError("ls: cannot open directory: Permission denied"),
]
RETURNED: list[dict[str, Any]] = [
    {"exit_code": 1, "stderr": "3 tests failed: TimeoutError: timed out"},
    {"exit_code": 127},
    {"exit_code": 255, "stderr": "connection reset"},
    {"error": "Traceback (most recent call last):\nZeroDivisionError: division by zero"},
    {"error": {"message": "rate limit", "code": 429}},
    {"error": "Permission denied"},
    {"isError": True, "content": [{"type": "text", "text": "ran\nExit code: 137\nbye"}]},
    {"isError": True, "structuredContent": {"error": {"code": "ENOENT", "message": "gone"}}},
    {"status_code": 503},
    {"error": "cancelled by the user"},
]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("lookup", {}),
    ("bash", {"command": "pytest -q"}),
    ("bash", {"command": "ssh host uptime"}),
    ("bash", {"command": "find / -name x"}),
    ("python", {"code": "1/0"}),
    ("mcp__lab__execute_python", {"code": "1/0"}),
    ("lab_run", {"command": "ls"}),
    ("write_file", {"path": "/home/ann/.ssh/authorized_keys"}),
]


class Answer:
    """A result that is an object, as MCP clients return it."""

    def __init__(self, fields: dict[str, Any]) -> None:
        vars(self).update(fields)


def told_by_a_worker(call: GuardedCall, raw: bytes, *, error: ErrorInfo | None = None) -> Any:
    """The verdict over the same failure, sent in clear by a publisher that says nothing of its severity."""
    rules = RuleSet(tools=ToolRules(families=dict(call.families)))
    start = ToolCallStarted(
        schema_version="1.0", id="1", time=NOW, session_id="s", call_id="c", tool_name=call.name,
        args=msgspec.Raw(orjson.dumps(call.args)),
    )  # fmt: skip
    finish = ToolCallFinished(
        schema_version="1.0", id="2", time=NOW, session_id="s", call_id="c", tool_name=call.name,
        status=CallStatus.ERROR, error=error, result=msgspec.Raw(raw),
    )  # fmt: skip
    return judge(finish, describe(start, 0, rules), rules)


def call_of(name: str, args: dict[str, Any]) -> GuardedCall:
    """A call with configured families."""
    call = GuardedCall(ToolRegistration(name=name), args, "s", "w")
    call.families = FAMILIES
    return call


@pytest.mark.parametrize("error", RAISED, ids=str)
def test_a_raised_error_is_as_bad_for_the_guard_as_for_a_worker(error: Exception) -> None:
    """Severity and neutrality."""
    for call in (call_of(name, args) for name, args in CALLS):
        failure = of_exception(error, call.program)
        verdict = told_by_a_worker(call, b"null", error=ErrorInfo(type=type(error).__name__, message=str(error)))
        assert (failure.neutral != "") == verdict.neutral, call.args
        assert verdict.neutral or failure.severity is verdict.severity, call.args


@pytest.mark.parametrize("send_errors", [False, True])
@pytest.mark.parametrize("error", RAISED, ids=str)
async def test_a_worker_hears_of_a_failure_what_the_guard_found(error: Exception, *, send_errors: bool) -> None:
    """Also where the message stays in the process."""
    guard = guard_for_tests(send_errors=send_errors)

    async def fails(**_: Any) -> None:
        raise error

    await guard.call("bash", fails, {"command": "make"}, session_id="s", max_attempts=1)
    found = [raw for raw in guard.memory.published if b'"tool_call.finished"' in raw]
    finish = msgspec.json.decode(found[-1], type=ToolCallFinished)
    start = msgspec.structs.replace(started_by(guard), args=msgspec.Raw(b'{"command":"make"}'))
    verdict = judge(finish, describe(start, 0, RuleSet()), RuleSet())
    failure = of_exception(error, call_of("bash", {"command": "make"}).program)
    assert (failure.neutral != "") == verdict.neutral
    assert verdict.neutral or failure.severity is verdict.severity


@pytest.mark.parametrize("result", RETURNED, ids=str)
def test_a_reported_failure_is_as_bad_for_the_guard_as_for_a_worker(result: dict[str, Any]) -> None:
    """As a dictionary, and as a client's object."""
    for call in (call_of(name, args) for name, args in CALLS):
        verdict = told_by_a_worker(call, orjson.dumps(result))
        assert verdict.failed or verdict.neutral
        for shown in [result, *([Answer(result)] if "isError" in result else [])]:
            failure = of_result(shown, call.program)
            assert (failure.neutral != "") == verdict.neutral, call.args
            assert verdict.neutral or failure.severity is verdict.severity, call.args

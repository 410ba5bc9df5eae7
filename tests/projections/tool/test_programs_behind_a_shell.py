"""Answers of programs and services behind a shell: what trust and circuits make of them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from fixed_rules import Rules
from story import Story
from trustfold.rules.calls import ToolRules

CURL = {"command": "curl -s http://localhost:8080/health"}
AWAY = "curl: (7) Failed to connect to localhost port 8080 after 0 ms: Couldn't connect to server"


def ends(story: Story, command: str, code: int, message: str = "", times: int = 1) -> Story:
    """A shell call that ends with an exit code, as often as told."""
    for _ in range(times):
        call = story.started("Bash", {"command": command})
        error = {"type": f"exit_code_{code}", "message": message}
        story.finished(call, "Bash", status="error" if code else "success", result=None, error=error if code else None)
    return story


def outcomes(story: Story, scope: str) -> list[dict[str, Any]]:
    """Outcomes of a scope, oldest first."""
    every = (orjson.loads(output.value or b"{}") for output in story.outputs if output.topic == "outcomes")
    return [one for one in every if one["scope"] == scope]


@pytest.mark.parametrize(
    ("command", "code", "expected"),
    [
        ("grep foo x", 1, True),
        ("grep foo x", 2, False),
        ("cd src && git diff --exit-code | head", 1, True),
        ("make", 1, False),
        ("gh pr checks 3", 8, True),
    ],
)
def test_an_answer_of_a_program_is_informational(command, code, expected):
    """By the shipped table, without a word in the rules."""
    told = outcomes(ends(Story(), command, code), "tool:Bash")
    assert told[-1].get("expected", False) is expected


def test_rules_replace_the_answers_of_a_program():
    """`tools.failures` has the last word, also to say that a program has no answers."""
    rules = Rules(tools=ToolRules(failures={"grep": {}, "lint": {"1": "answer"}}))
    assert not outcomes(ends(Story(rules=rules), "grep foo x", 1), "tool:Bash")[-1].get("expected")
    assert outcomes(ends(Story(rules=rules), "lint .", 1), "tool:Bash")[-1]["expected"]
    assert outcomes(ends(Story(rules=rules), "rg foo", 1), "tool:Bash")[-1]["expected"]


def test_a_service_behind_a_shell_is_told_and_nothing_is_asked():
    """Failures in a row escalate the service's own record, in words that are true; the tool and its key stay."""
    story = ends(Story(), CURL["command"], 7, AWAY, times=3)
    told = story.decided("trust.changed", key="service:curl@localhost:8080")
    assert (told["to"], told["scope"], told["silent"]) == ("escalated", "service", False)
    assert "No call is refused or asked about" in told["notification"]
    assert "permission_warning" not in told
    assert not [one for one in story.all("trust.changed") if "Bash" in one["key"]]


def test_the_circuit_of_a_service_behind_a_shell_is_observed():
    """It opens and closes like any other, in the mode that blocks nothing."""
    story = ends(Story(), CURL["command"], 7, AWAY, times=5)
    told = story.decided("breaker.changed")
    assert (told["breaker_key"], told["to"], told["mode"]) == ("service:curl@localhost:8080", "open", "observe")
    ends(story.after(minutes=1), CURL["command"], 0, times=2)
    assert [one["to"] for one in story.all("breaker.changed")] == ["open", "half_open", "closed"]
    assert {one["mode"] for one in story.all("breaker.changed")} == {"observe"}


def test_a_success_of_the_program_counts_for_the_service():
    """A failure, a success, a failure: no outage. A call that talks to nobody, or waits, says nothing."""
    story = ends(Story(), CURL["command"], 7, AWAY)
    ends(story, CURL["command"], 0)
    ends(story, CURL["command"], 7, AWAY)
    ends(story, "curl --version", 0)
    ends(story, "sleep 2; " + CURL["command"], 7, AWAY, times=5)
    assert [one["verdict"] for one in outcomes(story, "service:curl@localhost:8080")] == [
        "failure",
        "success",
        "failure",
    ]
    assert not story.all("trust.changed")


def test_a_refused_login_names_program_and_service():
    """The third 401 in a row says that the credential may be invalid."""
    story = ends(Story(), "gh pr list", 1, "HTTP 401: Bad credentials (https://api.github.com/graphql)", times=3)
    told = story.decided("trust.changed", key="service:gh@github.com")
    assert (told["to"], told["trigger"]) == ("escalated", "repeated_auth")


def test_an_http_tool_to_the_same_host_is_judged_by_its_own_calls():
    """What a shell saw asks nobody about a tool that is enforced."""
    story = ends(Story(), "curl -s https://api.example.com/x", 7, "curl: (7) Failed to connect", times=6)
    story.works("http_request", {"url": "https://api.example.com/x"})
    assert [one["verdict"] for one in outcomes(story, "service:api.example.com")] == ["success"]


def test_rules_name_the_service_of_an_own_program():
    """`tools.programs`, over the shipped table."""
    rules = Rules(tools=ToolRules(programs={"acmectl": "api.acme.example", "curl": ""}))
    story = ends(Story(rules=rules), "acmectl deploy", 1, "error: connection refused")
    assert outcomes(story, "service:acmectl@api.acme.example")[-1]["severity"] == "server_error"
    ends(story, CURL["command"], 7, AWAY)
    assert not outcomes(story, "service:curl@localhost:8080")

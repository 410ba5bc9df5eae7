"""The same missing program, module, credential, host or network behind many calls (docs/detection.md)."""

from __future__ import annotations

from typing import Any

import pytest
from story import Story

NPM = "npm ERR! network request to https://registry.npmjs.org failed, reason: getaddrinfo ENOTFOUND registry.npmjs.org"
KINDS: dict[str, tuple[list[str], str, str]] = {
    "program": (
        ["terraform plan", "cd infra && terraform init", "terraform fmt"],
        "terraform: command not found",
        "terraform",
    ),
    "module": (["python app.py", "python -m app", "python tests/run.py"], "No module named 'flask'", "flask"),
    "credential": (
        ["gh pr list", "gh issue list", "gh run list"],
        "HTTP 401: Bad credentials (https://api.github.com/)",
        "github",
    ),
    "host": (
        ["psql -h db.example.com", "pg_dump -h db.example.com", "psql -h db.example.com -l"],
        'could not connect to "db.example.com" (10.0.0.1), port 5432: Connection refused',
        "db.example.com",
    ),
    "network": (["npm install", "npm ci", "npm install left-pad"], NPM, "npm"),
}
"""Commands, what they fail with, and what stands in the name of what is missing."""


def needs(kind: str, *, story: Story | None = None, times: int = 3) -> Story:
    """Different commands that fail for want of the same thing."""
    story = story or Story()
    commands, message, _ = KINDS[kind]
    for number in range(times):
        story.fails("bash", {"command": commands[number % len(commands)]}, with_="", message=message)
    return story


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_missing_thing_behind_different_commands(kind: str) -> None:
    """The third is told, with the name of what is missing, to the person as well."""
    story = needs(kind)
    assert story.found("missing_environment") == [("minor", 3)]
    told = story.decided("pattern.detected", pattern="missing_environment")
    assert told["notify_user"]
    assert KINDS[kind][2] in told["message"]
    assert KINDS[kind][2] in story.decided("nudge.issued", pattern="missing_environment")["message"]


def test_it_rises_at_five_and_never_stops_a_run() -> None:
    """The person can help; a pause would not."""
    story = Story()
    for number in range(20):
        story.fails(
            "bash", {"command": f"terraform plan -out p{number}"}, with_="", message="terraform: command not found"
        )
    assert story.found("missing_environment") == [("minor", 3), ("moderate", 5)]
    assert "interrupt" not in {kind for pattern, kind in story.nudges() if pattern == "missing_environment"}


def test_other_tools_count_together() -> None:
    """A host that is away is away for all of them."""
    story = Story()
    for tool, args in (
        ("http_request", {"url": "https://api.example.com/a"}),
        ("fetch", {"url": "https://api.example.com/b"}),
        ("bash", {"command": "curl https://api.example.com/c"}),
    ):
        story.fails(tool, args, with_="", message="could not connect to api.example.com: Connection refused")
    assert story.found("missing_environment") == [("minor", 3)]


def test_edits_turns_and_other_work_do_not_end_it() -> None:
    """Nothing of it brings the program."""
    story = Story()
    for number in range(3):
        story.turn_starts()
        story.fails("bash", {"command": f"terraform plan {number}"}, with_="", message="terraform: command not found")
        story.works("edit_file", {"path": "/a", "n": number}, result=f"edited {number}")
        story.works("bash", {"command": f"python make.py {number}"}, result=f"made {number}")
        story.turn_ends()
    assert story.found("missing_environment") == [("minor", 3)]
    assert story.cleared() == []


def test_a_user_message_asks_for_one_failure_more() -> None:
    """The user may have heard of it; and it does not end what was reported."""
    story = needs("program", times=2)
    story.user_says()
    assert needs("program", story=story, times=1).found("missing_environment") == []
    assert needs("program", story=story, times=1).found("missing_environment") == [("minor", 4)]
    story.user_says()
    assert "missing_environment" not in story.cleared()


@pytest.mark.parametrize(
    ("kind", "tool", "args"),
    [
        ("program", "bash", {"command": "terraform version"}),
        ("module", "bash", {"command": "pip install flask"}),
        ("credential", "bash", {"command": "gh auth status"}),
        ("host", "bash", {"command": "psql -h db.example.com -c 'select 1'"}),
        ("network", "bash", {"command": "npm install"}),
    ],
)
def test_a_success_of_the_same_thing_ends_it(kind: str, tool: str, args: dict[str, Any]) -> None:
    """It is there now."""
    story = needs(kind).works(tool, args, result="fine now")
    assert "missing_environment" in story.cleared()


def test_a_host_of_this_machine_is_forgotten_when_something_may_have_started_it() -> None:
    """Any success of unknown effect; a remote host is not started so."""
    for host, forgotten in (("localhost:5432", True), ("db.example.com:5432", False)):
        story = Story()
        for number in range(3):
            story.fails("query_db", {"n": number}, with_="", message=f"dial tcp {host}: connect: connection refused")
        assert story.found("missing_environment") == [("minor", 3)], host
        story.works("bash", {"command": "docker compose up -d"}, result="started")
        assert ("missing_environment" in story.cleared()) is forgotten, host


@pytest.mark.parametrize(
    "message",
    [
        "1 failed, 3 passed",
        "Permission denied",
        "HTTP 403 Forbidden",
        "no such table: orders",
        "read timed out",
        "Thought: command not found",
    ],
)
def test_other_failures_name_nothing_missing(message: str) -> None:
    """Tests, refusals of sites, answers of databases, slow services, prose."""
    story = Story()
    for number in range(6):
        story.fails("bash", {"command": f"run it {number}"}, with_="", message=message)
    assert story.found("missing_environment") == []


def test_a_pipe_that_hides_the_exit_code() -> None:
    """A short output that says that the program was not found."""
    story = Story()
    for number in range(3):
        story.works("bash", {"command": f"jq .a{number} f.json | head"}, result="bash: jq: command not found")
    assert story.found("missing_environment") == [("minor", 3)]


def test_lines_that_wait_do_not_count() -> None:
    """Whoever waits for a server to come up expects that it is away."""
    story = Story()
    for number in range(6):
        message = "curl: (7) Failed to connect to localhost port 8080: Connection refused"
        story.fails("bash", {"command": f"sleep {number}; curl http://localhost:8080/"}, with_="", message=message)
    assert story.found("missing_environment") == []


def test_what_is_remembered_as_missing_is_bounded() -> None:
    """A session in which everything is missing."""
    story = Story()
    for number in range(100):
        story.fails("bash", {"command": f"p{number}x"}, with_="", message=f"p{number}x: command not found")
    assert len(story.state().detectors.missing_environment.things) == 16


def test_output_that_a_substitution_runs_is_no_missing_program() -> None:
    """The shell takes the first word of a listing for a command; the same of a program that the line names counts."""
    story = Story()
    for number in range(4):
        line = f"`ls -l /srv | head -n {number}`"
        story.fails("bash", {"command": line}, with_="", message="/bin/bash: line 1: total: command not found")
    assert story.found("missing_environment") == []
    for number in range(3):
        line = f"`xxd -l {number} /srv/a`"
        story.fails("bash", {"command": line}, with_="", message="/bin/bash: line 1: xxd: command not found")
    assert story.found("missing_environment") == [("minor", 3)]

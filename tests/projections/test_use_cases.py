"""The use cases of seeds 1 and 2 and the four-turn announce scenario, with the corrections of design 3."""

from __future__ import annotations

from scenarios import announce_without_action, cli_command_failures, http_service_degradation, mcp_server_dies


def test_http_service_degradation_escalates_at_the_third_failure_and_recovers() -> None:
    """Use case 1: three 503s escalate the key; half an hour later three successes restore trust."""
    story = http_service_degradation()
    for key in ("http_request|domain=api.example.com|path_prefix=data", "http_request", "service:api.example.com"):
        assert story.moves(key) == [
            ("trusted", "escalated"),
            ("escalated", "recovering"),
            ("recovering", "trusted"),
        ], key
    escalated = story.all("trust.changed", key="http_request", to="escalated")[0]
    assert escalated["reason"] == "3/3 failures in 1h"
    assert len(escalated["caused_by"]) == 3
    assert "escalated to require approval" in escalated["notification"]
    assert "recovered" in story.decided("trust.changed", key="http_request", to="trusted")["notification"]


def test_dangerous_command_blocks_at_once_until_reset() -> None:
    """Use case 2: two permission errors change nothing; `sudo rm -rf /` blocks bash and its rm key, with a reason."""
    story = cli_command_failures()
    assert story.moves("bash") == [("trusted", "blocked")]
    assert story.moves("bash|command=rm") == [("trusted", "blocked")]
    assert story.moves("bash|command=cat") == []
    blocked = story.decided("trust.changed", key="bash", to="blocked")
    assert blocked["trigger"] == "security"
    assert "security concern" in blocked["reason"]
    assert "🛑" in blocked["notification"]
    assert not blocked.get("silent")
    story.works("bash", {"command": "ls"}, times=5).command("trust.recover", "bash")
    assert story.moves("bash") == [("trusted", "blocked")]
    story.command("trust.reset", "bash")
    assert story.moves("bash")[-1] == ("blocked", "trusted")


def test_a_dying_mcp_server_escalates_alone() -> None:
    """Use case 3: two timeouts of two tools of one MCP server escalate that server and nothing else."""
    story = mcp_server_dies()
    assert [(one["key"], one["to"]) for one in story.all("trust.changed")] == [("service:atlassian", "escalated")]
    assert story.decided("trust.changed")["scope"] == "service"
    assert "atlassian" in story.decided("trust.changed")["notification"]


def test_announcing_without_acting_is_nudged_harder_each_turn() -> None:
    """Seed 2's scenario: nothing, gentle, direct, and a pause in the fourth turn although it announces nothing."""
    story = announce_without_action()
    announced = story.all("pattern.detected", pattern="announce_no_action")
    assert [(one["severity"], one["repetitions"]) for one in announced] == [
        ("minor", 2),
        ("moderate", 3),
        ("severe", 4),
    ]
    nudges = story.all("nudge.issued", pattern="announce_no_action")
    assert [one["nudge_type"] for one in nudges] == ["gentle", "direct", "interrupt"]
    assert nudges[1]["message"] == (
        "NOTICE: You've announced action 3 times without executing. Call the appropriate tool NOW."
    )
    assert nudges[2]["message"].startswith("PAUSED")
    assert nudges[2]["lane"] == "pause"

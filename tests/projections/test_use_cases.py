"""The use cases that trustfold was built from, as docs/seeds.md corrects them."""

from __future__ import annotations

from scenarios import announce_without_action, cli_command_failures, http_service_degradation, mcp_server_dies


def test_http_service_degradation_escalates_at_the_third_failure_and_recovers() -> None:
    """Use case 1: three 503s escalate the API; half an hour later three successes restore it. Users are told once."""
    story = http_service_degradation()
    fine = "http_request|domain=api.example.com|path_prefix=data"
    for key in (fine, "service:api.example.com"):
        assert story.moves(key) == [
            ("trusted", "escalated"),
            ("escalated", "recovering"),
            ("recovering", "trusted"),
        ], key
    assert story.moves("http_request") == [], "other APIs behind the tool are not asked about"
    told = [one for one in story.all("trust.changed") if not one.get("silent")]
    assert [(one["key"], one["to"]) for one in told] == [
        ("service:api.example.com", "escalated"),
        ("service:api.example.com", "recovering"),
        ("service:api.example.com", "trusted"),
    ]
    assert {one["part_of"] for one in story.all("trust.changed", key=fine)} == {"service:api.example.com"}
    assert told[0]["reason"] == "3/3 failures in 1h"
    assert len(told[0]["caused_by"]) == 3
    assert told[0]["notification"].startswith("⚠️ Service 'api.example.com' escalated to require approval")
    assert told[-1]["notification"] == "✓ Service 'api.example.com' recovered"


def test_dangerous_command_blocks_at_once_until_reset() -> None:
    """Use case 2: two permission errors change nothing; `sudo rm -rf /` blocks the rm of bash, with a reason."""
    story = cli_command_failures()
    key = "bash|danger=root"
    assert story.moves(key) == [("trusted", "blocked")]
    assert story.moves("bash") == story.moves("bash|command=cat") == story.moves("bash|command=rm") == []
    blocked = story.decided("trust.changed", key=key, to="blocked")
    assert blocked["trigger"] == "security"
    assert "security concern" in blocked["reason"]
    assert "🛑" in blocked["notification"]
    assert not blocked.get("silent")
    story.works("bash", {"command": "rm -rf /"}, times=5).command("trust.recover", key)
    assert story.moves(key) == [("trusted", "blocked")]
    story.command("trust.reset", key)
    assert story.moves(key)[-1] == ("blocked", "trusted")


def test_a_dying_mcp_server_escalates_alone() -> None:
    """Use case 3: two timeouts of two tools of one MCP server escalate that server and nothing else."""
    story = mcp_server_dies()
    assert [(one["key"], one["to"]) for one in story.all("trust.changed")] == [("service:atlassian", "escalated")]
    assert story.decided("trust.changed")["scope"] == "service"
    assert "atlassian" in story.decided("trust.changed")["notification"]


def test_announcing_without_acting_is_nudged_harder_each_turn() -> None:
    """Four turns of announcements: nothing, gentle, direct, and a pause in the fourth although it announces nothing."""
    story = announce_without_action()
    announced = story.all("pattern.detected", pattern="announce_no_action")
    assert [(one["severity"], one["repetitions"]) for one in announced] == [
        ("minor", 2),
        ("moderate", 3),
        ("severe", 4),
    ]
    nudges = story.all("nudge.issued", pattern="announce_no_action")
    assert [one["nudge_type"] for one in nudges] == ["gentle", "direct", "interrupt"]
    assert nudges[1]["message"].startswith("3 turns in a row ended with an announcement and no call")
    assert nudges[2]["message"].startswith("Stopped after 4 turns that ended with an announcement and no call.")
    assert nudges[2]["lane"] == "pause"

"""The use cases as stories, for the folds and for both engines."""

from __future__ import annotations

from story import Story

_DATA = {"url": "https://api.example.com/data"}


def http_service_degradation() -> Story:
    """Use case 1: an API answers 503 four times, and works again half an hour later."""
    story = Story(session="degradation")
    story.fails("http_request", _DATA, http_status=503, message="Service Unavailable", times=4)
    story.after(minutes=31)
    return story.works("http_request", _DATA, result={"data": 1}, times=3)


def cli_command_failures() -> Story:
    """Use case 2: permission errors, then a dangerous command."""
    story = Story(session="cli")
    for command in ("rm /protected/file", "cat /protected/secrets", "sudo rm -rf /"):
        story.fails("bash", {"command": command}, with_="", message="Permission denied")
    return story


def mcp_server_dies() -> Story:
    """Use case 3: two tools of one MCP server time out while another server works."""
    story = Story(session="mcp")
    story.fails("mcp_atlassian_search", {"jql": "project = PROJ"}, with_="", status="timeout", message="timeout")
    story.works("mcp_github_list_issues", {"repo": "a/b"})
    story.fails("mcp_atlassian_create_issue", {"project": "PROJ"}, with_="", status="timeout", message="timeout")
    return story.works("mcp_github_list_issues", {"repo": "a/c"})


def announce_without_action() -> Story:
    """Three turns announce work and only list tools; the fourth does not even announce."""
    story = Story(session="announce")
    texts = (
        "I'll restore the file from backup. Proceeding now.",
        "I'm going to restore and apply the fix. Proceeding immediately.",
        "You're right - I need to actually execute. Proceeding with the real steps now.",
        "",
    )
    for turn, text in enumerate(texts):
        story.event("turn.started", turn_index=turn)
        if text:
            story.says(text)
        story.works("list_tools", {"category": "filesystem"}, result=["read", "write"])
        story.event("turn.ended", turn_index=turn)
    return story


def fails_everywhere() -> Story:
    """Promotion: a tool fails in three workspaces of a user, works again in one, and fails on a day later."""
    story = Story(session="everywhere", user="ada", model="large-1")
    for workspace in ("shop", "blog", "w1"):
        story.moved(workspace=workspace).event("turn.started")
        story.works("deploy").fails("deploy", times=5)
        story.event("turn.ended")
    story.after(minutes=40).works("deploy", times=3)
    story.after(minutes=20).fails("deploy", times=5)
    story.after(minutes=25 * 60)
    return story.fails("deploy")


ALL = {
    "fails_everywhere": fails_everywhere,
    "http_service_degradation": http_service_degradation,
    "cli_command_failures": cli_command_failures,
    "mcp_server_dies": mcp_server_dies,
    "announce_without_action": announce_without_action,
}

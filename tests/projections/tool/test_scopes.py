"""Trust in the narrowest scope: whose failures count where, and who is told (docs/trust.md, Scopes)."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_rules import DefaultRule, Rules, TrustRules
from story import Story
from trustfold.rules.rules import EscalationPatch

RM, GIT, LS, MAKE = ({"command": f"{word} x"} for word in ("rm", "git", "ls", "make"))
API = {"url": "https://api.example.com/v1/users"}
OTHER_API = {"url": "https://other.example.com/v1/users"}


def told(story: Story) -> list[tuple[str, str]]:
    """Changes of trust that a user is notified of: key and new state."""
    return [(one["key"], one["to"]) for one in story.all("trust.changed") if not one.get("silent")]


def escalated(story: Story) -> set[str]:
    """Keys that are not trusted now."""
    latest = {one["key"]: one["to"] for one in story.all("trust.changed")}
    return {key for key, state in latest.items() if state != "trusted"}


def test_one_failing_command_never_makes_another_ask() -> None:
    """While git works, rm fails again and again: rm alone is escalated."""
    story = Story()
    for _ in range(8):
        story.fails("bash", RM).works("bash", GIT)
    assert escalated(story) == {"bash|command=rm"}


def test_three_failing_keys_are_a_failing_tool() -> None:
    """The third key that fails escalates the tool; two keys, however often they fail, do not."""
    story = Story()
    for command in (RM, GIT) * 3:
        story.fails("bash", command)
    assert escalated(story) == {"bash|command=rm", "bash|command=git"}
    story.fails("bash", LS)
    assert "bash" in escalated(story)
    assert story.decided("trust.changed", key="bash")["scope"] == "tool"


@pytest.mark.parametrize(
    ("tool", "targets"),
    [
        ("http_request", [{"url": f"https://api.example.com/{path}"} for path in ("users", "orders", "items", "v2")]),
        ("readFile", [{"path": f"/mnt/{folder}/x"} for folder in ("a", "b/c", "d", "e")]),
    ],
)
def test_many_keys_of_one_family_are_no_failing_tool(tool: str, targets: list[dict[str, Any]]) -> None:
    """Paths of one host or one top folder fail for one reason, which lies there: the tool as a whole is not judged."""
    story = Story()
    for target in targets * 3:
        story.fails(tool, target)
    assert story.moves(tool) == []
    assert len(escalated(story)) >= len(targets)


@pytest.mark.parametrize(
    ("tool", "targets"),
    [
        ("http_request", [{"url": f"https://{host}.example.com/users"} for host in "abc"]),
        ("readFile", [{"path": f"{folder}/x"} for folder in ("/mnt", "/etc", "src/a")]),
    ],
)
def test_three_failing_families_are_a_failing_tool(tool: str, targets: list[dict[str, Any]]) -> None:
    """Three hosts or three top folders have nothing in common but the tool."""
    story = Story()
    for target in targets:
        assert story.moves(tool) == []
        story.fails(tool, target)
    assert story.moves(tool) == [("trusted", "escalated")]


def test_a_family_that_works_again_is_no_failing_family() -> None:
    """Three top folders failed, and another folder below one of them has been read since: two are left."""
    story = Story()
    for path in ("/mnt/a/x", "/etc/x"):
        story.fails("readFile", {"path": path})
    story.works("readFile", {"path": "/mnt/b/x"}).fails("readFile", {"path": "/var/x"}, times=2)
    assert story.moves("readFile") == []
    story.fails("readFile", {"path": "/mnt/a/x"})
    assert story.moves("readFile") == [("trusted", "escalated")]


def test_what_the_operating_system_refuses_is_no_fault_of_the_tool() -> None:
    """Three directories that nobody may read, again and again: they are held, and every other one is read."""
    story = Story()
    for path in ("/root/a", "/etc/ssl/private/k", "/var/lib/x/y") * 3:
        story.fails("readFile", {"path": path}, with_="", message="EACCES: permission denied, open")
    assert story.moves("readFile") == []
    assert escalated(story) == {
        f"readFile|path_prefix={folder}" for folder in ("/root", "/etc/ssl/private", "/var/lib/x")
    }


def test_what_the_operating_system_refuses_does_not_prolong_an_outage_of_the_tool() -> None:
    """While the tool recovers, a refusal is none of its failures."""
    story = Story()
    for path in ("/mnt/x", "/etc/x", "/var/x"):
        story.fails("readFile", {"path": path})
    story.after(minutes=31).works("readFile", {"path": "/mnt/x"})
    story.fails("readFile", {"path": "/root/a"}, with_="", message="EACCES: permission denied, open")
    assert story.moves("readFile")[-1] == ("escalated", "recovering")


def test_a_refused_credential_of_a_tool_is_a_fault_of_the_tool() -> None:
    """A remote store answers 403 for each of its folders: the keys have one credential, that of the tool."""
    story = Story()
    for path in ("/a/x", "/b/x", "/c/x"):
        story.fails("readFile", {"path": path}, with_="", http_status=403, message="Forbidden")
    assert story.moves("readFile") == [("trusted", "escalated")]


@pytest.mark.parametrize("refusal", [{"http_status": 403}, {"http_status": 401}, {"with_": "repeated_auth"}])
def test_hosts_that_refuse_are_no_fault_of_the_tool(refusal: dict[str, Any]) -> None:
    """Each host has its own credential: nine refusals in a row by three hosts leave the others alone."""
    story = Story()
    for host in "abcabcabc":
        story.fails("http_request", {"url": f"https://{host}.example.com/users"}, message="no", **refusal)
    assert story.moves("http_request") == []
    assert {f"http_request|domain={host}.example.com|path_prefix=users" for host in "abc"} <= escalated(story)


def test_dangerous_commands_are_no_fault_of_their_tool() -> None:
    """Three programs are blocked for what they were to do; the shell runs others."""
    story = Story()
    for command in (RM, GIT, LS):
        story.fails("bash", command, with_="security")
    assert story.moves("bash") == []
    assert len(story.all("trust.changed", to="blocked")) == 3


def test_a_key_that_works_again_is_no_failing_key() -> None:
    """Two keys failed a while ago and have worked since: a third one that fails is alone."""
    story = Story()
    for command in (RM, GIT):
        story.fails("bash", command).works("bash", command)
    story.fails("bash", LS, times=5)
    assert escalated(story) == {"bash|command=ls"}


def test_a_tool_without_keys_is_its_own_key() -> None:
    """Three failures of a tool whose calls have no parameters worth a key."""
    assert escalated(Story().fails("deploy", times=3)) == {"deploy"}


def test_calls_without_a_key_are_judged_beside_those_with_one() -> None:
    """Searches without a path fail: they are escalated, searches below `src` are not."""
    story = Story().works("grep", {"path": "src"})
    story.fails("grep", {"pattern": "x"}, times=3)
    assert story.moves("grep") == [("trusted", "escalated")]
    assert story.decided("trust.changed", key="grep")["scope"] == "key"
    story.after(minutes=31).works("grep", {"path": "src"}, times=3)
    assert story.moves("grep") == [("trusted", "escalated")], "other calls do not recover it"
    story.works("grep", {"pattern": "x"}, times=3)
    assert story.moves("grep")[-1] == ("recovering", "trusted")


def test_a_service_is_judged_by_all_calls_to_it() -> None:
    """Two timeouts of two tools of one MCP server escalate the server; its tools and other servers stay trusted."""
    story = Story()
    story.fails("mcp__jira__search", with_="timeout").fails("mcp__jira__create", with_="timeout")
    story.works("mcp__github__search")
    assert escalated(story) == {"service:jira"}


def test_a_service_of_which_one_tool_fails_stays_trusted() -> None:
    """One tool of a server times out between successes of the others: the tool is escalated, the server is not."""
    story = Story()
    for _ in range(4):
        story.fails("mcp__jira__export", with_="timeout").works("mcp__jira__search", times=4)
    assert escalated(story) == {"mcp__jira__export|mcp_server=jira"}
    assert told(story) == [("mcp__jira__export|mcp_server=jira", "escalated")]


def test_another_api_behind_the_same_tool_stays_trusted() -> None:
    """Failures of one domain make neither the tool nor another domain ask, nor open their circuits."""
    story = Story().fails("http_request", API, http_status=503, times=6).works("http_request", OTHER_API)
    assert escalated(story) == {"service:api.example.com", "http_request|domain=api.example.com|path_prefix=v1"}
    assert story.circuit("service:api.example.com") == [("closed", "open")]
    assert story.circuit("tool:http_request") == story.circuit("service:other.example.com") == []


# --- one incident, one notification ---------------------------------------------------------------------------------


def test_a_dying_server_is_told_once() -> None:
    """Three tools of a server time out again and again: the server is told, its keys name it and are silent."""
    story = Story()
    for tool in ("search", "create", "export") * 3:
        story.fails(f"mcp__jira__{tool}", with_="timeout")
    assert told(story) == [("service:jira", "escalated")]
    parts = [one for one in story.all("trust.changed") if one.get("silent")]
    assert len(parts) == 3
    assert {one["part_of"] for one in parts} == {"service:jira"}


def test_a_tool_whose_keys_all_fail_is_told_once() -> None:
    """The tool is escalated with the third key; the keys that follow are silent, and so is their recovery."""
    story = Story()
    for command in (RM, GIT, LS) * 3:
        story.fails("bash", command)
    assert told(story) == [("bash", "escalated")]
    story.after(minutes=31)
    for command in (RM, GIT, LS) * 3:
        story.works("bash", command)
    assert escalated(story) == set()
    assert told(story) == [("bash", "escalated"), ("bash", "recovering"), ("bash", "trusted")]


def test_a_blocked_key_is_news_inside_an_incident() -> None:
    """A dangerous command is told although its tool is escalated already; the hint names the tool's reset."""
    story = Story()
    for command in (RM, GIT, LS):
        story.fails("bash", command)
    story.fails("bash", MAKE, with_="security")
    blocked = story.decided("trust.changed", to="blocked")
    assert (blocked["key"], blocked.get("silent"), blocked.get("part_of")) == ("bash|command=make", False, None)
    assert blocked["recovery_hint"] == "manual reset required: `trustfold reset 'bash'`"
    story.command("trust.reset", "bash")
    assert escalated(story) == set()


@pytest.mark.parametrize(
    ("tool", "args"), [("http_request", API), ("mcp__jira__search", {"jql": "x"}), ("bash", {"command": "git pull"})]
)
def test_an_order_for_a_tool_reaches_its_keys_wherever_they_live(tool: str, args: dict[str, Any]) -> None:
    """Resetting a tool resets its fine keys, those that live with a service too."""
    rules = Rules(trust=TrustRules(domain_rules={"api.example.com": EscalationPatch(count_threshold=9)}))
    story = Story(rules=rules).fails(tool, args, with_="corruption", times=9)
    fine = next(key for key in escalated(story) if key.startswith(f"{tool}|"))
    story.command("trust.reset", tool)
    assert story.moves(fine)[-1] == ("escalated", "trusted")
    assert story.decided("trust.changed", key=fine)["trigger"] == "reset"


def test_an_order_for_a_service_reaches_its_keys() -> None:
    """The reset that the hint of a silent key names makes its calls run again."""
    story = Story().fails("http_request", API, http_status=503, times=3)
    hint = story.decided("trust.changed", key="http_request|domain=api.example.com|path_prefix=v1")["recovery_hint"]
    assert "`trustfold reset 'service:api.example.com'`" in hint
    story.command("trust.reset", "service:api.example.com")
    assert escalated(story) == set()


def test_an_order_for_one_key_of_a_service_is_found() -> None:
    """A fine key that lives with its service is reset by the key that is shown."""
    story = Story()
    for _ in range(4):
        story.fails("mcp__jira__export", with_="timeout").works("mcp__jira__search", times=4)
    story.command("trust.reset", "mcp__jira__export|mcp_server=jira")
    assert escalated(story) == set()


# --- rules by scope --------------------------------------------------------------------------------------------------


def test_rules_judge_their_own_scope() -> None:
    """Service and domain rules never reach the tool as a whole; tool and plugin rules never reach the service."""
    rules = TrustRules(
        default_rule=DefaultRule(cooldown_seconds=1),
        plugin_rules={"p": EscalationPatch(rate_min_calls=2, count_threshold=2)},
        service_rules={"jira": EscalationPatch(window_seconds=3)},
        domain_rules={"jira": EscalationPatch(escalation_duration_seconds=4)},
        tool_rules={"t": EscalationPatch(block_after=5)},
    )

    def of(scope: str) -> tuple[Any, ...]:
        rule = rules.rules_for("t", service="jira", plugin="p").of(scope)
        return (
            rule.cooldown_seconds, rule.rate_min_calls, rule.window_seconds, rule.escalation_duration_seconds,
            rule.block_after,
        )  # fmt: skip

    assert of("key") == (1, 2, 3, 4, 5)
    assert of("tool") == (1, 2, 3600, 1800, 5)
    assert of("service") == (1, 5, 3, 4, 10)


def test_a_domain_rule_may_name_an_mcp_server() -> None:
    """The rule of the server as a whole, above the one that is shipped for services."""
    rules = Rules(trust=TrustRules(domain_rules={"jira": EscalationPatch(count_threshold=4)}))
    story = Story(rules=rules).fails("mcp__jira__a", with_="timeout", times=3)
    assert story.moves("service:jira") == []
    assert story.fails("mcp__jira__b", with_="timeout").moves("service:jira") == [("trusted", "escalated")]


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_keys_with_defaults_alone_make_room() -> None:
    """A tool that has its most fine keys forgets the earliest that never failed, so that a new one is judged."""
    story = Story(rules=Rules(trust=TrustRules(max_fine_keys=2)))
    for directory in "abcdef":
        story.works("readFile", {"path": f"/{directory}/x"})
    story.fails("readFile", {"path": "/a/x"}, times=3).fails("readFile", {"path": "/b/x"}, times=3)
    assert {"readFile|path_prefix=/a", "readFile|path_prefix=/b"} <= escalated(story)
    assert story.counted() == {}


def test_a_dangerous_command_is_blocked_where_there_is_no_room_for_its_key() -> None:
    """It gets a record of its own all the same; its tool never answers for it."""
    story = Story(rules=Rules(trust=TrustRules(max_fine_keys=1)))
    story.fails("bash", RM, times=3).fails("bash", GIT, with_="security")
    assert story.moves("bash|command=git") == [("trusted", "blocked")]
    assert story.moves("bash") == []


# --- circuits --------------------------------------------------------------------------------------------------------


def test_one_crashing_command_never_opens_the_shell() -> None:
    """Ten crashes of one command in a row: the circuit of the tool stays closed; with three commands it opens."""
    story = Story().works("bash", GIT).fails("bash", RM, with_="crash", times=10)
    assert story.circuit("tool:bash") == []
    for command in (GIT, LS):
        story.fails("bash", command, with_="crash")
    assert story.circuit("tool:bash") == [("closed", "open")]


def test_a_key_that_failed_long_ago_opens_no_circuit() -> None:
    """Two keys failed an hour ago; the third is alone now."""
    story = Story()
    for command in (GIT, LS):
        story.fails("bash", command, with_="crash", times=2)
    story.after(minutes=60).fails("bash", RM, with_="crash", times=10)
    assert story.circuit("tool:bash") == []


def test_a_removed_tool_leaves_its_trusted_keys_alone() -> None:
    """Removing a tool is one change, however many services hold a trusted key of it; restoring it is one, too."""
    story = Story().works("http_request", API).works("http_request", OTHER_API)
    story.command("tool.remove", "http_request")
    story.command("tool.restore", "http_request")
    assert [(one["key"], one["to"]) for one in story.all("trust.changed")] == [
        ("http_request", "removed"),
        ("http_request", "trusted"),
    ]

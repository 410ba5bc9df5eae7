"""Definition of incidents: the states of one row, their order, words, and the orders that resolve them."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_rules import TO_OPEN
from story import Story
from trustfold.projections.incidents import (
    DAY_MS,
    STUCK_MS,
    IncidentRecord,
    OpenAsk,
    OpenPattern,
    SessionNews,
    of_session,
    ranked,
)
from trustfold.projections.tool.tool_state import MAX_ACKNOWLEDGED
from trustfold.schemas.codec import rfc3339
from trustfold.schemas.events import epoch_ms
from trustfold.schemas.public_state import PublicState, public_state

NOW = 1_795_348_800_000
HOUR = 3_600_000
API = "service:api.example.com"


def state(kind: str, key: str, word: str = "", age: int = 60_000, **more: Any) -> PublicState:
    """A public state that began so many milliseconds ago."""
    at = rfc3339(NOW - age)
    own = {"schema_version": "1.0", "id": key, "time": at, "since": at, "kind": kind, "key": key, "workspace_id": "w"}
    if kind == "quality":
        del own["since"]
    return public_state(own | ({"state": word} if word else {}) | more)


def trust(key: str, word: str, age: int = 60_000, **more: Any) -> PublicState:
    """Trust of a key."""
    return state("trust", key, word, age, **{"scope": "key", "reason": "3/3 failures in 1h"} | more)


def circuit(key: str, word: str = "open", **more: Any) -> PublicState:
    """A circuit; an open one stays so for a minute."""
    return state("breaker", key, word, open_until=rfc3339(NOW + 60_000), reason="rate", **more)


def session(name: str, age: int = 60_000, *, severity: int = 0, asks: bool = False, lost: int = 0) -> SessionNews:
    """A session of which something was heard so many milliseconds ago."""
    patterns = (
        (OpenPattern("", "error_retry_loop", "f", severity, 7, "bash `make`", NOW - age - HOUR),) if severity else ()
    )
    asked = (OpenAsk("c1", "helper", "bash make deploy", NOW - age),) if asks else ()
    return SessionNews(name, "w", patterns, asked, (NOW - age,) * lost, NOW - age)


def found(*what: PublicState | SessionNews) -> list[IncidentRecord]:
    """Incidents of now."""
    sessions = [one for one in what if isinstance(one, SessionNews)]
    return ranked([one for one in what if not isinstance(one, SessionNews)], sessions, NOW)


OUTAGE = (
    trust(API, "escalated", scope="service"),
    *(
        trust(f"{tool}|domain=api.example.com", "escalated", 120_000 + number, last_error=f"HTTP 503: {number}",
              last_failure_at=rfc3339(NOW - 9 + number), last_failed_session=f"s{number}", failed_sessions=2,
              part_of=API)
        for number, tool in enumerate(("fetch", "http_request", "web"))
    ),
    circuit(API),
)  # fmt: skip


def test_an_outage_of_a_service_is_one_row_with_one_order() -> None:
    """Three keys, the service and its circuit: the error's words, since the first of them, who was hit."""
    (one,) = found(*OUTAGE)
    assert (one.state, one.kind, one.subject, len(one.parts)) == ("escalated", "service", API, 5)
    assert one.orders == (f"trustfold reset '{API}' --workspace 'w'",)
    assert one.cause == "HTTP 503: 2; 3/3 failures in 1h"
    assert (one.since_ms, one.until_ms) == (NOW - 120_002, NOW + 60_000)
    assert (one.hit, set(one.sessions)) == (3, {"s0", "s1", "s2"})


def test_outages_of_other_workspaces_services_and_users_are_rows_of_their_own() -> None:
    """They have other causes and other orders."""
    elsewhere = trust("fetch|domain=api.example.com", "escalated", workspace_id="other")
    of_user = trust("fetch", "escalated", scope="user", user_id="ada", workspace_id=None)
    other = trust("fetch|domain=b.example.com", "escalated")
    rows = found(*OUTAGE, elsewhere, of_user, other)
    assert {(one.workspace, one.subject) for one in rows} == {
        ("w", API), ("other", "fetch|domain=api.example.com"), ("user:ada", "fetch"),
        ("w", "fetch|domain=b.example.com"),
    }  # fmt: skip
    assert [one.orders for one in rows if one.workspace == "user:ada"] == [()]


def test_keys_of_a_tool_are_one_row_only_while_the_tool_as_a_whole_is_in_trouble() -> None:
    """`make` of a shell fails without its `git`."""
    keys = [trust("bash|command=git", "blocked"), trust("bash|command=make", "escalated")]
    assert [one.subject for one in found(*keys)] == ["bash|command=git", "bash|command=make"]
    for whole in (circuit("tool:bash"), trust("bash", "escalated", scope="tool")):
        (one,) = found(*keys, whole)
        assert (one.subject, one.state, one.kind) == ("bash", "blocked", "tool")
        assert one.orders == ("trustfold reset 'bash' --workspace 'w'",)
    assert len(found(*keys, circuit("tool:bash", "closed", mode="observe"))) == 2


def test_tools_of_a_server_belong_to_its_outage() -> None:
    """Whichever of them failed."""
    (one,) = found(
        trust("mcp__db__query|mcp_server=db", "escalated"), circuit("service:db"),
        state("quality", "mcp__db__query", score=0.1, registered_score=0.9),
    )  # fmt: skip
    assert one.subject == "service:db"
    assert one.orders[1:] == ("trustfold quality restore 'mcp__db__query' --workspace 'w'",)


def test_what_is_old_stands_below_what_happens_now() -> None:
    """An escalation of 88 days is below an agent that is stuck now, and a little below one of today."""
    rows = found(
        trust("old", "blocked", 88 * DAY_MS), trust("today", "escalated", 5 * HOUR), session("stuck", severity=1),
        trust("now", "blocked"),
    )  # fmt: skip
    assert [one.subject for one in rows] == ["now", "stuck", "today", "old"]


@pytest.mark.parametrize(
    "waits", [trust("ready", "recovering", 5 * HOUR, recovery_pending=True), session("ready", 5 * HOUR, asks=True)]
)
def test_what_waits_for_a_person_stands_first(waits: PublicState | SessionNews) -> None:
    """Above all that is blocked; not for ever: after a day without news it ranks by its age."""
    rows = found(trust("now", "blocked"), session("stuck", severity=3), waits)
    assert (rows[0].subject, rows[0].state) == ("ready", "waiting")
    assert rows[0].waiting


def test_a_session_that_waits_says_for_what() -> None:
    """And which agent."""
    (one,) = found(session("s1", severity=3, asks=True))
    assert one.cause == "waits for an answer: bash make deploy"
    assert one.agents == ("helper",)
    assert one.orders == ()


def test_a_stuck_session_is_abandoned_after_an_hour_of_silence() -> None:
    """Then nobody works in it, and nobody has dealt with it either; it says when that will be."""
    (one,) = found(session("s1", severity=3))
    assert (one.state, one.severity, one.since_ms) == ("stuck", 3, NOW - 60_000 - HOUR)
    assert one.until_ms == one.news_ms + STUCK_MS
    later = of_session(session("s1", severity=3), one.until_ms)
    assert later is not None
    assert later.state == "abandoned"
    assert [one.state for one in found(session("a", 2 * HOUR, severity=3), trust("old", "escalated", 99 * DAY_MS))] == [
        "escalated", "abandoned",
    ]  # fmt: skip


def test_lost_calls_make_a_session_unknown() -> None:
    """Nobody knows how they ended; with the next event of the session it is known that it works on."""
    (one,) = found(session("s1", 30 * HOUR, lost=2))
    assert (one.state, one.cause) == ("unknown", "2 calls never ended, and nothing was heard since")
    assert of_session(session("s1", lost=2).heard(NOW), NOW) is None


def test_a_question_is_answered_by_its_call() -> None:
    """The end of another call changes nothing."""
    asks = session("s1", asks=True)
    assert of_session(asks.heard(NOW, "c2"), NOW) is not None
    assert of_session(asks.heard(NOW, "c1"), NOW) is None


def noted(key: str, age: int, severity: str = "moderate", scope: str = "key", **more: Any) -> PublicState:
    """The acknowledgement of an incident, so many milliseconds ago."""
    at = rfc3339(NOW - age)
    own = {"severity": severity, "acknowledged_at": at, "acknowledged_by": "ada"} | more
    return state("incident", key, age=age, scope=scope, **own)


@pytest.mark.parametrize(
    ("what", "key", "age", "holds"),
    [
        ([trust("a", "escalated")], "a", 30_000, True),
        ([trust("a", "blocked")], "a", 30_000, False),  # more severe than what was seen
        ([trust("a", "escalated")], "a", 90_000, False),  # another one: it began later
        ([trust("a", "escalated")], "b", 30_000, False),
        ([trust("a", "recovering", 10_000, escalated_at=rfc3339(NOW - 60_000))], "a", 30_000, True),
        ([circuit("tool:a", age=10_000, first_opened_at=rfc3339(NOW - 60_000))], "tool:a", 30_000, True),
        ([*OUTAGE], API, 30_000, True),
        ([*OUTAGE], OUTAGE[1].key, 30_000, False),  # one of its keys was seen, before the service was in trouble
        ([session("s1", severity=2)], "session:s1", 30_000, True),
        ([session("s1", severity=3)], "session:s1", 30_000, False),
    ],
)  # fmt: skip
def test_an_acknowledgement_holds_until_the_incident_is_over_or_more_severe(
    what: list[PublicState | SessionNews], key: str, age: int, holds: bool
) -> None:
    """Then it stands below what needs somebody, and says who deals with it."""
    scope = "session" if key.startswith("session:") else "key"
    rows = found(trust("other", "recovering", 5 * HOUR), *what, noted(key, age, scope=scope))
    assert [one.acknowledged is not None for one in rows] == ([False, True] if holds else [False, False])
    assert [one.subject for one in rows].index("other") == (0 if holds else 1)
    assert [one.record().get("acknowledged_by") for one in rows if one.acknowledged] == ["ada"] * holds


def test_a_new_question_is_open_again_in_an_acknowledged_session() -> None:
    """Somebody dealt with another one."""
    asks = session("s1", 10_000, severity=3, asks=True)
    (one,) = found(asks, noted("session:s1", 30_000, "severe", "session"))
    assert one.acknowledged is None
    (one,) = found(asks, noted("session:s1", 5_000, "severe", "session"))
    assert one.acknowledged is not None


def test_a_circuit_that_is_probed_stays_acknowledged_until_it_closes() -> None:
    """Through failed probes; one that opens anew, and a key that relapses, are open again."""
    story = Story().fails("deploy", times=TO_OPEN, http_status=503)

    def told() -> dict[str, bool]:
        states = [story.state_of(kind, key) for kind, key in (("breaker", "tool:deploy"), ("incident", "tool:deploy"))]
        rows = ranked([public_state(one) for one in states if one], [], epoch_ms(story.now))
        return {one.subject: one.acknowledged is not None for one in rows}

    story.command("incident.acknowledge", "tool:deploy", severity="moderate")
    assert told() == {"tool:deploy": True}
    for _ in range(3):
        story.after(minutes=60).fails("deploy", http_status=503)
        assert told() == {"tool:deploy": True}
    story.command("breaker.close", "tool:deploy")
    assert told() == {}
    story.fails("deploy", times=TO_OPEN, http_status=503)
    assert told() == {"tool:deploy": False}


def test_an_acknowledgement_is_withdrawn_by_an_order() -> None:
    """Also one that nobody has given; then the incident is open again, and another one of the scope is not."""
    story = Story().fails("deploy", times=3)
    for key in ("deploy", "tool:deploy"):
        story.command("incident.acknowledge", key)
    for _ in range(2):
        story.command("incident.acknowledge", "deploy", withdraw=True)
    assert story.state_of("incident", "deploy") is None
    assert story.state_of("incident", "tool:deploy") is not None


def test_an_acknowledged_incident_says_how_much_it_has_grown() -> None:
    """At the same severity it stays acknowledged: failures and sessions since, or repetitions of a session."""
    times = tuple(rfc3339(NOW - age) for age in (50_000, 20_000, 10_000))
    key = trust("a", "escalated", failure_history=times, failed_sessions=3)
    stuck = session("s1", severity=2)
    for what, size, grown in (
        (key, 1, "2 more failures that count, 2 more sessions hit"),
        (key, 3, "2 more failures that count"),
        (key, None, "2 more failures that count"),  # of a version that did not say how much was seen
        (stuck, 4, "3 more repetitions"),
        (stuck, 7, ""),
    ):
        name, scope = ("session:s1", "session") if what is stuck else ("a", "key")
        (one,) = found(what, noted(name, 30_000, scope=scope, size=size))
        assert (one.acknowledged is not None, one.grown) == (True, grown)
        assert one.record().get("grown", "") == grown
    (one,) = found(key)
    assert (one.grown, one.size) == ("", 3)


def test_acknowledgements_of_a_tool_are_bounded() -> None:
    """The oldest is withdrawn."""
    story = Story()
    for number in range(MAX_ACKNOWLEDGED + 1):
        story.command("incident.acknowledge", f"bash|command=c{number}")
    assert story.state_of("incident", "bash|command=c0") is None
    assert story.state_of("incident", "bash|command=c1") is not None


def test_what_is_well_or_handled_is_no_incident() -> None:
    """Trusted keys with failures, removed tools, circuits that operators hold open or only observe."""
    assert found(
        trust("fine", "trusted", failures=1.0), trust("gone", "removed"), circuit("tool:held", "forced_open"),
        circuit("tool:watched", "open", mode="observe"), state("quality", "good", score=0.8, registered_score=0.9),
        session("works"),
    ) == []  # fmt: skip


@pytest.mark.parametrize(
    ("states", "order"),
    [
        ([trust("a b", "blocked", workspace_id="/it's")], r"trustfold reset 'a b' --workspace '/it'\''s'"),
        ([trust("a", "escalated", workspace_id="default")], "trustfold recover 'a'"),
        ([trust("a", "recovering", recovery_pending=True)], "trustfold recover 'a' --workspace 'w'"),
        ([circuit("tool:a")], "trustfold breaker close 'tool:a' --workspace 'w'"),
        ([circuit("tool:a"), trust("a", "escalated")], "trustfold reset 'a' --workspace 'w'"),
    ],
)
def test_orders_are_complete_command_lines(states: list[PublicState], order: str) -> None:
    """Quoted for a shell, with the workspace."""
    (one,) = found(*states)
    assert one.orders == (order,)


def test_a_credential_is_a_subject() -> None:
    """Where calls are refused for it again and again; an approval that nobody has used yet is told."""
    (one,) = found(
        trust("a", "escalated", trigger="repeated_auth", approval_id="o1", approval_expires_at=rfc3339(NOW + 9))
    )
    assert one.kind == "credential"
    assert one.waiting == (f"one call of a may pass until {rfc3339(NOW + 9)}",)


def test_the_record_of_an_incident_says_all_of_it() -> None:
    """For machines, in plain data."""
    (one,) = found(*OUTAGE[:1])
    assert one.record() == {
        "state": "escalated", "severity": "moderate", "kind": "service", "subject": API, "workspace": "w",
        "cause": "3/3 failures in 1h", "since": rfc3339(NOW - 60_000), "last_news": rfc3339(NOW - 60_000),
        "changes_at": rfc3339(NOW - 60_000 + STUCK_MS), "parts": [f"trust {API}: escalated"],
        "orders": [f"trustfold recover '{API}' --workspace 'w'"],
    }  # fmt: skip

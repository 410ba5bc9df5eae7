"""Incidents: what is wrong at a time, one row for each outage or session, most urgent first. Nothing else defines it.

Theory of operation. What an outage moves (keys, a tool or service as a whole, its circuit and score) are its *parts*.
Parts that may belong together are of one *family*, which follows from the key alone: that of the service that the key
names, else that of its tool. A family of a service is one incident. In a family of a tool everything is one incident
while the tool as a whole is in trouble; else each key is one, since a shell's `make` fails without its `git`. A session
is one incident, whatever its agents wait for and repeat. Nothing depends on more than one family or session, so that a
follower computes again only those that have changed, and those whose time has come (`until_ms`).

An incident is acknowledged while it is the one that an operator saw (`incident.acknowledge`): it began before that, and
is not more severe. It stands below the others then, and says how much it has grown since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from ..schemas.codec import rfc3339
from ..schemas.decision_text import circuit_state_reason, counted, plain, repeated_calls, times
from ..schemas.decisions import PatternDetected
from ..schemas.events import epoch_ms
from ..schemas.outcomes import DEFAULT_WORKSPACE, US
from ..schemas.public_state import (
    BreakerUpdated,
    IncidentUpdated,
    ModelUpdated,
    PublicState,
    QualityUpdated,
    TrustUpdated,
)
from ..schemas.vocabulary import BreakerMode, BreakerState, PatternSeverity, TrustState, TrustTrigger
from .calls.keys import escape, has_scope, in_quotes, mcp_server, scope_of_key, tool_key, tool_of_key
from .session.session_state import SessionState

# States of incidents that need a person, or may need one soon. `waiting`: for a person.
NEEDED = ("waiting", "blocked", "escalated", "stuck", "open", "half-open", "degraded", "recovering")

CALM = ("ok", "handled")  # States of what is no incident: nothing is wrong, or an operator has dealt with it

# All states. `unknown`: calls were lost, and nobody knows how they ended. `abandoned`: a session fell silent while it
# was stuck.
STATES = (*NEEDED, "unknown", "abandoned", *CALM)

SEVERITIES = tuple(PatternSeverity)  # Severities, least first
STUCK_MS = 3_600_000  # Milliseconds without news after which a session with an open pattern is abandoned

DAY_MS = 86_400_000

FOR_EVER = 1 << 62

_PLACE = {word: place for place, word in enumerate(STATES)}
# Severity of states, 1 to 3, where it is not 1; a session has that of its worst pattern
_SEVERITY = {"waiting": 3, "blocked": 3, "escalated": 2, "open": 2}


class OpenPattern(NamedTuple):
    """Pattern that an agent has not left."""

    agent: str  # agent of the session; empty for the main agent
    pattern: str
    fingerprint: str  # with agent and pattern it identifies the streak
    severity: int  # 1 minor, 2 moderate, 3 severe
    times: int  # number of repetitions so far
    what: str  # its tools and its latest request; may be empty
    since_ms: int
    id: str = ""  # id of the decision that reported it; empty if unknown
    message: str = ""  # text for a person; empty without one
    counted_ms: int = 0  # time of the decision that said `times`; 0: they are of now


class OpenAsk(NamedTuple):
    """Question to a person that nobody has answered."""

    call_id: str
    agent: str
    what: str  # tool and request that wait
    since_ms: int


class SessionNews(NamedTuple):
    """Open patterns, unanswered questions and lost calls of a session that is not over."""

    session_id: str
    workspace: str
    patterns: tuple[OpenPattern, ...] = ()
    asks: tuple[OpenAsk, ...] = ()
    lost: tuple[int, ...] = ()  # times of its latest calls that were lost, if nothing has come from it since
    news_ms: int = 0  # time of its last event, or of the last decision about it where events are not known

    def with_pattern(self, found: OpenPattern | None, ident: tuple[str, ...], at_ms: int) -> SessionNews:
        """The same after a decision: the pattern has been seen again; None: it is over."""
        others = tuple(one for one in self.patterns if one[:3] != ident)
        return self._replace(patterns=others if found is None else (*others, found)).heard(at_ms)

    def heard(self, at_ms: int, answered: str = "") -> SessionNews:
        """The same after an event; `answered`: the call that no longer waits."""
        asks = tuple(one for one in self.asks if one.call_id != answered) if answered else self.asks
        return self._replace(asks=asks, lost=(), news_ms=max(self.news_ms, at_ms))


NOTHING = SessionNews("", "")  # Of a session of which nothing is known


class IncidentRecord(NamedTuple):
    """One outage, or one session with trouble. Incidents sort by urgency; times are milliseconds since 1970."""

    # sort key: first what waits for a person and had news in the last day; then by the age of the last news (within an
    # hour, within a day, older), severity, state, and since when
    order: tuple[int, ...]
    key: str  # identifies it while it lasts
    state: str  # one of `STATES`
    severity: int  # 1 minor, 2 moderate, 3 severe
    subject: str  # key of the tool, service or single key, or id of the session
    workspace: str  # where it holds; for a user everywhere, `user:ID`
    since_ms: int  # when its oldest part began
    news_ms: int  # when something was last heard of it
    until_ms: int  # when it changes by itself
    parts: tuple[PublicState, ...] = ()  # public states of the outage, the worst first; none of a session
    session: SessionNews | None = None  # the session; None of an outage
    acknowledged: IncidentUpdated | None = None  # that somebody deals with it; None if nobody does

    @property
    def name(self) -> str:
        """Key of the orders about it."""
        return self.subject if self.session is None else f"session:{self.subject}"

    @property
    def kind(self) -> str:
        """Kind of its subject: `session`, `credential`, `service`, `tool`, `tier`, or a single `key`."""
        if self.session is not None:
            return "session"
        if any(isinstance(one, TrustUpdated) and one.trigger is TrustTrigger.REPEATED_AUTH for one in self.parts):
            return "credential"
        scope, colon, _ = self.subject.partition(":")
        if colon and has_scope(self.subject):
            return scope
        return "tool" if self.subject == tool_key(tool_of_key(self.subject)) else "key"

    @property
    def error(self) -> str:
        """Words of the latest error; empty if unknown."""
        found = [one for one in self.parts if getattr(one, "last_error", None)]
        latest = max(found, key=lambda one: getattr(one, "last_failure_at", None) or "", default=None)
        return str(getattr(latest, "last_error", ""))

    @property
    def reason(self) -> str:
        """Why it is in its state, in words."""
        if self.session is not None:
            return _session_reason(self.session, self.state)
        return _reason(self.parts[0])

    @property
    def cause(self) -> str:
        """Words of the error and the reason of the state."""
        return "; ".join(filter(None, (self.error, self.reason)))

    @property
    def sessions(self) -> tuple[str, ...]:
        """Sessions that it hit last, by name."""
        if self.session is not None:
            return (self.session.session_id,)
        return tuple(dict.fromkeys(s for one in self.parts if (s := getattr(one, "last_failed_session", None))))

    @property
    def hit(self) -> int:
        """Number of sessions that it hit lately."""
        return max(len(self.sessions), *(getattr(one, "failed_sessions", None) or 0 for one in self.parts), 0)

    @property
    def size(self) -> int:
        """Number of sessions that it hit lately; of a session of the repetitions of its patterns."""
        return self.hit if self.session is None else sum(one.times for one in self.session.patterns)

    @property
    def grown(self) -> str:
        """Growth since the acknowledgement in words, such as `3 more sessions hit`; empty without growth."""
        if self.acknowledged is None:
            return ""
        more = self.size - (self.size if self.acknowledged.size is None else self.acknowledged.size)
        if self.session is not None:
            return f"{counted(more, 'more repetition')}" if more > 0 else ""
        seen_ms = _ms(self.acknowledged.acknowledged_at)
        fell = len([at for at in failure_times(self.parts) if at > seen_ms])
        failed = f"{counted(fell, 'more failure')} that count{'s' if fell == 1 else ''}" if fell else ""
        return ", ".join(filter(None, (failed, f"{counted(more, 'more session')} hit" if more > 0 else "")))

    @property
    def agents(self) -> tuple[str, ...]:
        """Agents of the session that are concerned, without the main one."""
        news = self.session or NOTHING
        every = [one.agent for one in news.asks] + [one.agent for one in news.patterns]
        return tuple(dict.fromkeys(filter(None, every)))

    @property
    def waiting(self) -> tuple[str, ...]:
        """Questions and recoveries that wait for a person, and approvals not yet used, in words."""
        if self.session is not None:
            return tuple(one.what for one in self.session.asks)
        trust = [one for one in self.parts if isinstance(one, TrustUpdated)]
        return (
            *(f"{one.key} has earned its trust back" for one in trust if one.recovery_pending),
            *(_approval(one) for one in trust if one.approval_id),
        )

    @property
    def verb(self) -> str:
        """Order that resolves it, without its subject: `reset`, `recover`, `breaker close`; empty if none does."""
        parts = [one for one in self.parts if one.scope != "user"]
        trust = [one for one in parts if isinstance(one, TrustUpdated)]
        circuits = any(isinstance(one, BreakerUpdated) for one in parts)
        if trust:
            blocked = any(one.state is TrustState.BLOCKED for one in trust)
            return "reset" if circuits or blocked else "recover"
        return "breaker close" if circuits else ""

    @property
    def orders(self) -> tuple[str, ...]:
        """Command lines that together resolve all of it; none of a session, which the agent's user answers."""
        where = f" --workspace {in_quotes(self.workspace)}" if self.workspace not in {"", "default"} else ""
        verb = self.verb
        found = [f"trustfold {verb} {in_quotes(self.subject)}{where}"] if verb else []
        scores = [one for one in self.parts if isinstance(one, QualityUpdated) and one.score != one.registered_score]
        return (*found, *(f"trustfold quality restore {in_quotes(one.key)}{where}" for one in scores))

    def record(self) -> dict[str, Any]:
        """The incident as plain data; empty fields are left out."""
        found = {
            "state": self.state,
            "severity": str(SEVERITIES[self.severity - 1]),
            "kind": self.kind,
            "subject": self.subject,
            "workspace": self.workspace,
            "cause": self.cause,
            "since": rfc3339(self.since_ms),
            "last_news": rfc3339(self.news_ms),
            "changes_at": rfc3339(self.until_ms) if self.until_ms < FOR_EVER else None,
            "acknowledged": self.acknowledged and self.acknowledged.acknowledged_at,
            "acknowledged_by": self.acknowledged and self.acknowledged.acknowledged_by,
            "grown": self.grown,
            "sessions": list(self.sessions),
            "sessions_hit": self.hit,
            "size": self.size,
            "agents": list(self.agents),
            "parts": [f"{one.kind} {one.key}: {word_of(one, self.news_ms)[0]}" for one in self.parts],
            "waiting": list(self.waiting),
            "orders": list(self.orders),
        }
        return {name: value for name, value in found.items() if value}


def failure_times(states: Iterable[PublicState]) -> list[int]:
    """Times of the latest failures that count for trust, milliseconds since 1970; one may count for several keys."""
    times: Counter[str] = Counter()
    for one in states:
        if isinstance(one, TrustUpdated):
            times |= Counter(one.failure_history)
    return sorted(map(_ms, times.elements()))


def family_of(state: PublicState) -> str:
    """Family of a state: its workspace or user, and the service or tool that it may be part of an outage of.

    That of an acknowledged session is `session:ID`.
    """
    if state.scope == "session":
        return state.key
    if state.scope == "user":
        return f"user:{state.user_id}{US}{state.key}"
    return f"{state.workspace_id or ''}{US}{_scope_of(state.key)}"


@lru_cache(maxsize=8192)
def _scope_of(key: str) -> str:
    """Scope whose state holds the key; of tools of an MCP server that of the server."""
    scope = scope_of_key(key)
    server = mcp_server(scope.removeprefix("tool:")) if scope.startswith("tool:") else ""
    return f"service:{escape(server)}" if server else scope


def of_family(states: Iterable[PublicState], now_ms: int) -> list[IncidentRecord]:
    """Incidents of the states of one family; what is well or handled is a row of its own."""
    found, trouble, noted = [], [], {}
    for state in states:
        if isinstance(state, IncidentUpdated):
            noted[state.key] = state
            continue
        word, until = word_of(state, now_ms)
        if word in NEEDED:
            trouble.append((_PLACE[word], state.key, word, until, state))
        elif not isinstance(state, ModelUpdated):
            found.append(_outage([(_PLACE[word], state.key, word, until, state)], state.key, now_ms))
    if not trouble:
        return found
    trouble.sort(key=lambda one: one[:2])
    whole = _whole_of([one[4] for one in trouble])
    if whole and len(trouble) > 1:
        return [*found, _outage(trouble, whole, now_ms, noted.get(whole))]
    return [*found, *(_outage([one], one[1], now_ms, noted.get(one[1])) for one in trouble)]


_Part = tuple[int, str, str, int, PublicState]  # Place of its word, key, word, when it changes by itself, and the state


def _whole_of(states: Sequence[PublicState]) -> str:
    """Subject of the one outage of which states of a family are parts; empty if each is an incident of its own."""
    scope = _scope_of(states[0].key)
    if states[0].scope == "user" or not scope.startswith("tool:"):
        return scope
    tool = tool_key(scope.removeprefix("tool:"))
    wide = any(one.key in {tool, scope} and not isinstance(one, QualityUpdated) for one in states)
    return tool if wide else ""


def _outage(parts: Sequence[_Part], subject: str, now_ms: int, noted: IncidentUpdated | None = None) -> IncidentRecord:
    states = tuple(one[4] for one in parts)
    first, word = states[0], parts[0][2]
    where = f"user:{first.user_id}" if first.scope == "user" else first.workspace_id or ""
    news = max(_ms(max(filter(None, _times(one)))) for one in states)
    since = min(_ms(_began(one)) for one in states)
    key = f"{first.kind}:{where}{US}{subject}" if word in CALM else f"{where}{US}{subject}"
    severity = _SEVERITY.get(word, 1)
    noted = _valid(noted, since, severity)
    order, until = _order(word, severity, (since, news, min(one[3] for one in parts)), now_ms, noted)
    return IncidentRecord(order, key, word, severity, subject, where, since, news, until, states, None, noted)


def _times(state: PublicState) -> tuple[str | None, ...]:
    return getattr(state, "since", None) or state.time, getattr(state, "last_failure_at", None), state.time


def _began(state: PublicState) -> str:
    """When the trouble of a part began: of a key that recovers its escalation, of a circuit its first opening."""
    first = getattr(state, "first_opened_at", None)
    if isinstance(state, TrustUpdated) and state.state is TrustState.RECOVERING:
        first = state.escalated_at
    return first or getattr(state, "since", None) or state.time


def _valid(noted: IncidentUpdated | None, since_ms: int, severity: int) -> IncidentUpdated | None:
    """The acknowledgement, if it is of this incident and what was seen was no less severe."""
    seen = noted is not None and severity <= SEVERITIES.index(noted.severity) + 1
    return noted if noted is not None and seen and since_ms <= _ms(noted.acknowledged_at) else None


def of_session(news: SessionNews, now_ms: int, states: Iterable[PublicState] = ()) -> IncidentRecord | None:
    """Incident of a session; None if nothing is wrong with it. `states` are those of its family."""
    worst = max((one.severity for one in news.patterns), default=1)
    began = [one.since_ms for one in news.asks] + [one.since_ms for one in news.patterns] or list(news.lost)
    if not began:
        return None
    silent_at = news.news_ms + (DAY_MS if news.asks else STUCK_MS)
    until = FOR_EVER
    if news.asks or news.patterns:
        word, until = ("waiting" if news.asks else "stuck", silent_at) if silent_at > now_ms else ("abandoned", until)
    else:
        word = "unknown"
    severity = max(worst, _SEVERITY.get(word, 1))
    noted = next((one for one in states if isinstance(one, IncidentUpdated)), None)
    noted = _valid(noted, max((one.since_ms for one in news.asks), default=min(began)), severity)
    order, until = _order(word, severity, (min(began), news.news_ms, until), now_ms, noted)
    return IncidentRecord(
        order, f"session:{news.session_id}", word, severity, news.session_id, news.workspace, min(began), news.news_ms,
        until, (), news, noted,
    )  # fmt: skip


def _order(
    word: str, severity: int, times_ms: tuple[int, int, int], now_ms: int, noted: IncidentUpdated | None
) -> tuple[tuple[int, ...], int]:
    """Sort key of an incident, and when it or its state changes; `times_ms`: since, last news, change of the state."""
    since, news, until = times_ms
    age = now_ms - news
    band = 0 if age < STUCK_MS else 1 if age < DAY_MS else 2
    if band < 2 and word in NEEDED:
        until = min(until, news + (STUCK_MS, DAY_MS)[band])
    group = 0 if word == "waiting" and band < 2 else 1 if word in NEEDED else _PLACE[word]
    if noted is not None and word in NEEDED:
        group = 2
    return (group, band, -severity, _PLACE[word], -since), until


def ranked(states: Iterable[PublicState], sessions: Iterable[SessionNews], now_ms: int) -> list[IncidentRecord]:
    """All incidents of a time, most urgent first, without what is well or handled."""
    families: dict[str, list[PublicState]] = {}
    for state in states:
        families.setdefault(family_of(state), []).append(state)
    found = [one for family in families.values() for one in of_family(family, now_ms)]
    told = (of_session(news, now_ms, families.get(f"session:{news.session_id}", ())) for news in sessions)
    found += filter(None, told)
    return sorted(one for one in found if one.state not in CALM)


# --- states and words of parts ---


def word_of(state: PublicState, now_ms: int) -> tuple[str, int]:
    """State of a part, and when it changes by itself."""
    match state:
        case TrustUpdated():
            return ("waiting" if state.recovery_pending else _WORDS_OF_TRUST[state.state]), FOR_EVER
        case BreakerUpdated():
            return _word_of_circuit(state, now_ms)
        case QualityUpdated():
            score, whole = state.score, state.registered_score
            low = score is not None and whole is not None and score < whole / 2
            return ("degraded" if low or state.tags else "ok"), FOR_EVER
    return "ok", FOR_EVER


_WORDS_OF_TRUST = {
    TrustState.BLOCKED: "blocked",
    TrustState.ESCALATED: "escalated",
    TrustState.RECOVERING: "recovering",
    TrustState.REMOVED: "handled",
    TrustState.TRUSTED: "ok",
}


def _word_of_circuit(state: BreakerUpdated, now_ms: int) -> tuple[str, int]:
    if state.mode not in {None, BreakerMode.ENFORCE} or state.state is BreakerState.FORCED_OPEN:
        return "handled", FOR_EVER
    if state.state is BreakerState.OPEN:
        until = _ms(state.open_until) if state.open_until else FOR_EVER
        return ("open", until) if until > now_ms else ("half-open", FOR_EVER)
    return ("half-open" if state.state is BreakerState.HALF_OPEN else "ok"), FOR_EVER


def _reason(state: PublicState) -> str:
    match state:
        case TrustUpdated(recovery_pending=True):
            return "has earned its trust back and waits for an operator"
        case TrustUpdated():
            return state.reason or ""
        case BreakerUpdated():
            return circuit_state_reason(state)
        case QualityUpdated():
            tags = ", ".join(state.tags)
            return f"{counted(int(state.failures or 0), 'counted failure')}{': ' if tags else ''}{tags}"
    return ""


def _session_reason(news: SessionNews, state: str) -> str:
    if state == "waiting":
        more = f", and {counted(len(news.asks) - 1, 'other question')}" if len(news.asks) > 1 else ""
        return f"waits for an answer: {news.asks[0].what}{more}"
    if not news.patterns:
        return f"{counted(len(news.lost), 'call')} never ended, and nothing was heard since" if news.lost else ""
    worst = max(news.patterns, key=lambda one: (one.severity, one.times))
    more = f", and {counted(len(news.patterns) - 1, 'other pattern')}" if len(news.patterns) > 1 else ""
    what = f": {worst.what}" if worst.what else ""
    older = 0 < worst.counted_ms < news.news_ms  # it went on since, and only its session's own state has the count
    as_of = f", as of {rfc3339(worst.counted_ms)[:19]}Z" if older else ""
    return (worst.message.rstrip(".") or f"{plain(worst.pattern)}{what} {times(worst.times)}") + as_of + more


def _approval(state: TrustUpdated) -> str:
    who = f"all calls of session {state.approval_session_id}" if state.approval_session_id else "one call"
    return f"{who} of {state.key} may pass until {state.approval_expires_at}"


def pattern_of(found: PatternDetected) -> OpenPattern:
    """Open pattern of a decision that reports one."""
    severity = SEVERITIES.index(found.severity) + 1
    since = _ms(found.time) - (found.duration_ms or 0)
    ident = found.agent_id or "", found.pattern, found.fingerprint or ""
    message = (found.message or "") if found.notify_user else ""
    what, counted_ms = repeated_calls(found), _ms(found.time)
    return OpenPattern(*ident, severity, found.repetitions, what, since, found.id, message, counted_ms)


def news_of(session_id: str, state: SessionState) -> SessionNews:
    """News of a session, from its state in the session stage."""
    agents = {state.agent: state.active} | {name: agent.active for name, agent in state.agents.items()}
    return SessionNews(
        session_id,
        state.workspace_id or DEFAULT_WORKSPACE,
        tuple(
            OpenPattern(
                agent, one.pattern, f"{one.fingerprint:016x}", one.severity, one.count,
                f"{one.tool_name} `{one.request}`" if one.request else one.tool_name, one.first_ms, one.pattern_id,
            )
            for agent, active in agents.items() for one in active if one.severity
        ),
        (
            *(
                OpenAsk(one.call_id, one.agent_id, f"{one.tool_name} {one.summary}".strip(), one.waiting_since)
                for one in state.open_calls if one.waiting_since
            ),
            *(OpenAsk(call_id, "", "a call", since_ms) for call_id, since_ms in state.asked),
        ),
        news_ms=state.clock,
    )  # fmt: skip


def _ms(time: str) -> int:
    """Milliseconds since 1970 of a time with a zone."""
    return epoch_ms(datetime.fromisoformat(time))

"""State of one tool, service or model tier in one workspace. Bounded; fields are only ever appended."""

from __future__ import annotations

import msgspec

from ...schemas.vocabulary import BreakerState, TrustState
from ..stage import KeyState
from .model_state import ModelProfile
from .quality_state import QualityRecord
from .standing_state import StandingRecord

MAX_FAILURES = 200
"""Counted failures remembered per trust key; twice the largest threshold, as model errors count half."""

MAX_RATE_CALLS = 200
"""Calls remembered for a rate threshold."""

MAX_FAILING = 64
"""Fine keys remembered as failing per tool."""

MAX_SERVICES = 64
"""Services remembered per tool, to pass orders for the tool on to its keys there."""

MAX_SESSIONS = 16
"""Sessions remembered per trust key for the decay by session boundary."""


class Failure(msgspec.Struct, array_like=True):
    """A counted failure.

    Attributes:
        at: stream time of its finish, milliseconds.
        weight: what it counts, before it decays.
        session: ordinal of its session on this record.
        event_id: the event behind it.
        key: digest of the call's fine key, where the record is shared by several keys; else 0.
        call: ordinal of the call among the calls of the record.
    """

    at: int
    weight: float
    session: int
    event_id: str
    key: int = 0
    call: int = 0


class TrustRecord(msgspec.Struct, array_like=True):
    """Trust in one key.

    Attributes:
        calls: times (ms) of the calls in the rate window, shifted left by one, lowest bit set for a counted failure.
        watermark: failures at or before this time never count again (reset or recovery).
        duration_ms: current escalation duration; doubled by each relapse.
        last_counted: time of the last counted failure; the cooldown runs from it.
        failures_since: counted failures since the last success while escalated.
        sessions: digests of the sessions that used the key since its oldest failure, oldest first.
        session_count: how many sessions were ever counted; the newest has this ordinal.
        published: a state record stands on the `state` topic.
        by_hand: a reporter called a failure behind this one unrecoverable: only an operator's order restores trust.
        calls_seen: calls that worked or failed, ever; the ordinal of the latest. Failures that pass by themselves
            (transient, outside the filter) are not among them.
        worked: calls that worked, ever.
        session_flags: per entry of `sessions`: `WORKED`, `FAILED`, or both.
        failing: digests of the fine keys whose latest call failed; for a record that several keys share.
        last_success: time of the last success, milliseconds.
        since: when the present state began, milliseconds; 0 for a key that was always trusted.
        part_of: key of the wider record that was not trusted when this one was escalated; users were told of that.
        approval: id of the operator's approval by which one call may pass; empty: none.
        approval_until: when that approval ends, milliseconds.
    """

    key: str
    scope: str
    state: TrustState = TrustState.TRUSTED
    failures: list[Failure] = []
    calls: list[int] = []
    consecutive: int = 0
    auth_failures: list[int] = []
    last_counted: int = 0
    watermark: int = 0
    escalated_at: int = 0
    duration_ms: int = 0
    failures_since: int = 0
    successes: int = 0
    successes_needed: int = 0
    pending: bool = False
    reason: str = ""
    trigger: str = ""
    denials: int = 0
    last_denied: str = ""
    sessions: list[int] = []
    session_count: int = 0
    published: bool = False
    evidence: list[str] = []
    by_hand: bool = False
    calls_seen: int = 0
    worked: int = 0
    session_flags: list[int] = []
    failing: list[int] = []
    last_success: int = 0
    since: int = 0
    part_of: str = ""
    approval: str = ""
    approval_until: int = 0


class Lease(msgspec.Struct, array_like=True):
    """The fleet's one probe of a half-open breaker."""

    holder: str
    call_id: str
    until: int
    event_id: str
    session_id: str = ""


class BreakerRecord(msgspec.Struct, array_like=True):
    """One circuit.

    Attributes:
        mode: `enforce`, `observe` (computes and reports, never blocks) or `disabled`.
        results: latest measured calls, oldest first: time (ms) shifted left by two, bit 0 failed, bit 1 slow.
        consecutive: failures in a row; an answered error breaks the row.
        opened_at: when it opened; calls that started before do not settle a probe.
        reopened: openings since it last closed; sets the back-off.
        spent_ms: milliseconds spent in closed, open, half_open and forced_open up to `since`.
        since: when the current state began.
        failing: of a tool with fine keys: digests of the keys whose latest call failed, and when it did.
    """

    state: BreakerState = BreakerState.CLOSED
    mode: str = "enforce"
    results: list[int] = []
    consecutive: list[int] = []
    opened_at: int = 0
    open_until: int = 0
    reopened: int = 0
    opened_total: int = 0
    successes: int = 0
    lease: Lease | None = None
    since: int = 0
    spent_ms: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0, 0])
    trigger: str = ""
    published: bool = False
    tool_class: str = ""
    failing: dict[int, int] = {}


class ToolState(KeyState):
    """Everything about one scope: its circuit, its own trust record and those of its fine keys.

    Attributes:
        fine: trust records by fine key: of a tool those that belong to no service, of a service those of its tools.
            At most `max_fine_keys`; where there is no room, calls count in the tool's or service's record alone.
        recent_ids: digests of the latest commands and appended events, to recognise a repeat.
        origins: per partition of `events`, the origin of the last outcome folded.
        kind: `mcp` or `domain` for services, as the last outcome said; with `plugin_name` it finds rules for commands.
        models: per failure key, what each model makes of it; bounded, see `model_state`.
        model_suggestions: digests of (session, key) for which another model has been suggested.
        quality: absent while the tool stands at the score it was registered with and nothing is remembered.
        standing: what is counted and told for the fleet; tools only.
        keyed: the tool has had calls with a fine key of their own.
        services: services that hold fine keys of the tool; at most `MAX_SERVICES`, the earliest leave first.
    """

    workspace_id: str = ""
    scope: str = ""
    breaker: BreakerRecord = msgspec.field(default_factory=BreakerRecord)
    trust: TrustRecord | None = None
    fine: dict[str, TrustRecord] = {}
    recent_ids: list[int] = []
    origins: dict[int, int] = {}
    kind: str = ""
    plugin_name: str = ""
    models: dict[str, dict[str, ModelProfile]] = {}
    model_suggestions: list[int] = []
    quality: QualityRecord | None = None
    standing: StandingRecord | None = None
    keyed: bool = False
    services: list[str] = []

"""State of one tool, service or model tier in one workspace. Bounded; fields are only ever appended."""

from __future__ import annotations

import msgspec

from ...rules.rules import Rules
from ...schemas.vocabulary import BreakerMode, BreakerState, TrustState
from ..emitter import Emitter
from ..stage import KeyState

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

MAX_MODEL_KEYS = 32
"""Failure keys of one tool with profiles of their own; the calls of further ones count for the tool as a whole."""

MAX_MODELS = 16
"""Models remembered per key; a further one takes the place of the one unused for longest."""

MAX_SUGGESTIONS = 128
"""Suggestions remembered per tool, so that a session hears of a key once."""

MAX_MODEL_EVIDENCE = 5
"""Events remembered per profile that count against the model."""

FIRST_TOLD = 8
"""Calls after which a profile without failures is published first; then whenever the calls have doubled."""

FAILURES_TOLD = 8
"""Of its failures each of the first is published; later ones when they are an eighth more than published last."""

MAX_SCENARIOS = 16
"""Scenarios remembered in which a tool has failed; the longest past one goes first."""

MAX_WORDS = 32
"""Words watched or tagged per tool; the one that failed longest ago goes first."""

MAX_USERS = 8
"""Users remembered per tool and workspace: the latest to have begun using it there."""


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
    mode: BreakerMode = BreakerMode.ENFORCE
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


class ModelProfile(msgspec.Struct, array_like=True):
    """One model on one failure key.

    Attributes:
        attempts: calls that succeeded or failed.
        failures: of these, the failed ones, whoever is to blame.
        own: of the failed ones, those of the model's own making.
        patterns: times it went round in circles.
        last_at: time (ms) of its last call.
        last_failed: time (ms) of its last failure; 0 never.
        tell_at: attempts at which a follower is told next, if nothing fails before.
        evidence: ids of the latest events that count against the model, newest last.
        bad_at: failures and patterns at which a follower is told next.
    """

    attempts: int = 0
    failures: int = 0
    own: int = 0
    patterns: int = 0
    last_at: int = 0
    last_failed: int = 0
    tell_at: int = FIRST_TOLD
    evidence: list[str] = []
    bad_at: int = 0


class FailedScenario(msgspec.Struct, array_like=True):
    """What a tool was used for when it last failed at that, and when (ms)."""

    text: str
    at: int


class WordRecord(msgspec.Struct, array_like=True):
    """How often a tool failed at scenarios with a word.

    Attributes:
        failures: capability failures.
        until: time (ms) up to which they count, and up to which a tag holds.
    """

    failures: int
    until: int


class QualityRecord(msgspec.Struct, array_like=True):
    """How well one tool does what it is for.

    Attributes:
        score: 0 to 1.
        failures: counted failures since it last stood at its registered score; sets the surcharge.
        raised: the score an operator registered it with anew; 0: that of the rules holds.
        words: content words of failed scenarios.
        scenarios: scenarios it has failed in, oldest first.
        last_failed: time (ms) of the last counted failure.
        told: score that followers know.
        published: a state record stands on the `state` topic.
        missed: latest calls in a row that did not reach the tool, as far as they matter.
        missed_at: time (ms) of the last of them.
        down_told: time (ms) until which followers take the tool for unavailable; 0 they do not.
    """

    score: float
    failures: int = 0
    raised: float = 0.0
    words: dict[str, WordRecord] = {}
    scenarios: list[FailedScenario] = []
    last_failed: int = 0
    told: float = 0.0
    published: bool = False
    missed: int = 0
    missed_at: int = 0
    down_told: int = 0


class FleetReport(msgspec.Struct, array_like=True):
    """Calls of one tool in one workspace, and what the fleet knows of them.

    Attributes:
        users: who calls it here, in the order they came.
        until: end of the newest bucket, milliseconds.
        tally: calls and failures of the newest bucket, then those of the ones before.
        told: trust state that the fleet was told last; empty when it needs to know nothing.
        told_calls: calls it was told.
        told_failures: failures it was told.
        told_until: end of the bucket in which it was told.
    """

    users: list[str] = []
    until: int = 0
    tally: list[int] = []
    told: str = ""
    told_calls: int = 0
    told_failures: int = 0
    told_until: int = 0


class ToolState(KeyState):
    """Everything about one scope: its circuit, its own trust record and those of its fine keys.

    Attributes:
        fine: trust records by fine key: of a tool those that belong to no service, of a service those of its tools.
            At most `max_fine_keys`; where there is no room, calls count in the tool's or service's record alone.
        recent_ids: digests of the latest commands and appended events, to recognise a repeat.
        origins: per partition of `events`, the origin of the last outcome folded.
        kind: `mcp` or `domain` for services, as the last outcome said; with `plugin_name` it finds rules for commands.
        models: per failure key, what each model makes of it; at most `MAX_MODEL_KEYS` keys of `MAX_MODELS` models.
        model_suggestions: digests of (session, key) for which another model has been suggested.
        quality: absent while the tool stands at the score it was registered with and nothing is remembered.
        fleet_report: what is counted and told for the fleet; tools only.
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
    fleet_report: FleetReport | None = None
    keyed: bool = False
    services: list[str] = []

    @property
    def kind_of_scope(self) -> str:
        """What the scope is: `tool`, `service` or `tier`."""
        return self.scope.partition(":")[0]

    @property
    def name(self) -> str:
        """The scope's own name: of the tool, service or tier."""
        return self.scope.partition(":")[2]


class Fold(msgspec.Struct, frozen=True, gc=False):
    """One record being folded: into which state, when, by which rules, and where decisions go.

    Attributes:
        at: stream time, milliseconds.
    """

    state: ToolState
    at: int
    rules: Rules
    emit: Emitter

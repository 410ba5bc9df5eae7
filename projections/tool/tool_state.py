"""State of one tool, service or model tier in one workspace. Its size is bounded; new fields are only appended."""

from __future__ import annotations

import msgspec

from ...rules.rules import RuleSet
from ...schemas.vocabulary import BreakerMode, BreakerState, PatternSeverity, TrustState
from ..emitter import OutputEmitter
from ..stage import KeyState

# Maximum number of counted failures per trust key: twice the largest threshold, as model errors count half
MAX_FAILURES = 200

MAX_RATE_CALLS = 200  # Maximum number of calls kept for a rate threshold
MAX_FAILING = 64  # Maximum number of fine keys, or families of them, per tool recorded as failing
MAX_SERVICES = 64  # Maximum number of services per tool to whose keys orders for the tool are passed on
MAX_SESSIONS = 16  # Maximum number of sessions per trust key kept for the decay by sessions

# Maximum number of failure keys of one tool with their own profiles; calls of further keys count for the tool
MAX_MODEL_KEYS = 32

MAX_MODELS = 16  # Maximum number of models per key; a further one replaces the least recently used
MAX_SUGGESTIONS = 128  # Maximum number of suggestions remembered per tool, so that a session gets one per key
MAX_MODEL_EVIDENCE = 5  # Maximum number of events per profile kept as evidence against the model

# Calls after which a profile without failures is first published; afterwards whenever the calls have doubled
FIRST_PUBLISHED_AT = 8

# Number of first failures that are each published; later ones after an increase by one part in this number
FIRST_FAILURES_PUBLISHED = 8

MAX_SCENARIOS = 16  # Maximum number of failed scenarios per tool; the oldest is dropped first
MAX_WORDS = 32  # Maximum number of words per tool, tagged or not; the one with the oldest failure is dropped first
MAX_ACKNOWLEDGED = 64  # Maximum number of acknowledged incidents per scope; the oldest is dropped first
MAX_USERS = 8  # Maximum number of users per tool and workspace; the first added is dropped first


# Number of different calls that must fail by an exception of the tool's own, before it says that the tool broke
MANY_CALLS = 3


def may_be_answer(seen: list[int], call: int) -> bool:
    """Note a call that failed by an exception of the tool's own; whether it may be an answer to what was asked."""
    if call not in seen and len(seen) < MANY_CALLS:
        seen.append(call)
    return len(seen) < MANY_CALLS


class CountedFailure(msgspec.Struct, array_like=True):
    """A counted failure."""

    at: int  # stream time of the finish, milliseconds
    weight: float  # weight before decay
    session: int  # ordinal of its session on this record
    event_id: str  # id of the event that reported it
    family: int = 0  # digest of the family of the call's fine key if the record is shared by several keys; else 0
    call: int = 0  # ordinal of the call among the calls of the record


class TrustRecord(msgspec.Struct, array_like=True):
    """Trust record of one key."""

    key: str
    scope: str
    state: TrustState = TrustState.TRUSTED
    failures: list[CountedFailure] = []
    # times (ms) of the calls in the rate window, shifted left by one, lowest bit set for a counted failure
    calls: list[int] = []
    consecutive: int = 0
    auth_failures: list[int] = []
    last_counted: int = 0  # time (ms) of the last counted failure; the cooldown starts there
    watermark: int = 0  # time (ms) of the last reset or recovery; failures of calls begun earlier never count again
    escalated_at: int = 0
    duration_ms: int = 0  # current escalation duration; doubled by each relapse
    failures_since: int = 0  # counted failures since the last success while escalated
    successes: int = 0
    successes_needed: int = 0
    pending: bool = False
    reason: str = ""
    trigger: str = ""
    denials: int = 0
    last_denied: str = ""
    sessions: list[int] = []  # digests of the sessions that used the key since its oldest failure, oldest first
    session_count: int = 0  # number of sessions ever counted; also the ordinal of the newest
    published: bool = False  # whether the `state` topic holds a record of the key
    evidence: list[str] = []
    # whether a reporter marked one of the failures as unrecoverable; then only an operator restores trust
    by_hand: bool = False
    # number of calls that succeeded or failed, ever; also the ordinal of the latest. Transient failures outside the
    # filter are not counted.
    calls_seen: int = 0
    worked: int = 0  # number of calls that succeeded, ever
    session_flags: list[int] = []  # per entry of `sessions`: `WORKED`, `FAILED`, or both
    # digests of the families of fine keys of which no call has worked since a counted failure, for a record shared by
    # several keys
    failing: list[int] = []
    last_success: int = 0  # time of the last success, milliseconds
    since: int = 0  # start of the current state, milliseconds; 0 for a key that was always trusted
    # key of the wider record that was not trusted when this one was escalated, and whose changes users see
    part_of: str = ""
    approval: str = ""  # id of the operator's approval that lets one call pass; empty if none
    approval_until: int = 0  # end of that approval, milliseconds
    approval_session: str = ""  # session all of whose calls pass by it; empty: one call
    dangers: int = 0  # number of its dangerous calls, made or held back
    # fingerprints of different calls that failed by an exception of the tool's own since the last success, at most
    # `MANY_CALLS`
    own_class: list[int] = []
    error: str = ""  # words of its last counted failure, or refusal for its credential
    failed_session: str = ""  # session of that failure


class ProbeHolder(msgspec.Struct, array_like=True):
    """Lease of the fleet's single probe of a half-open breaker; `until` in milliseconds."""

    holder: str
    call_id: str
    until: int
    event_id: str
    session_id: str = ""


class BreakerRecord(msgspec.Struct, array_like=True):
    """One circuit."""

    state: BreakerState = BreakerState.CLOSED
    mode: BreakerMode = BreakerMode.ENFORCE  # `enforce`, `observe` (computes and reports, never blocks) or `disabled`
    # latest measured calls, oldest first: time (ms) shifted left by two, bit 0 failed, bit 1 slow
    results: list[int] = []
    consecutive: list[int] = []  # times (ms) of consecutive failures; an answered error clears them
    opened_at: int = 0  # time (ms) of the opening; calls that started before it do not settle a probe
    open_until: int = 0
    reopened: int = 0  # number of openings since it last closed; determines the back-off
    opened_total: int = 0
    successes: int = 0
    lease: ProbeHolder | None = None
    since: int = 0  # start of the current state, milliseconds
    # milliseconds spent in closed, open, half_open and forced_open up to `since`
    spent_ms: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0, 0])
    trigger: str = ""
    published: bool = False
    tool_class: str = ""
    # for a tool with fine keys: time (ms) of the latest failure, by digest of the keys that are failing
    failing: dict[int, int] = {}
    # own_class, error, failed_session: as in `TrustRecord`
    own_class: list[int] = []
    error: str = ""
    failed_session: str = ""
    first_opened: int = 0  # time (ms) of the first opening since it was closed; 0 while it is closed


class AcknowledgedIncident(msgspec.Struct, array_like=True):
    """Acknowledgement of an incident: its time (ms), the severity and size that were seen, and who gave it."""

    at: int
    severity: PatternSeverity
    by: str
    size: int | None = None


class KeyProfile(msgspec.Struct, array_like=True):
    """Profile of one model on one failure key."""

    attempts: int = 0  # calls that succeeded or failed
    failures: int = 0  # failed calls, whatever the cause
    own: int = 0  # failed calls that the model caused
    patterns: int = 0  # detected patterns of the model
    last_at: int = 0  # time (ms) of its last call
    last_failed: int = 0  # time (ms) of its last failure; 0 never
    # number of attempts at which the profile is published next, if nothing fails before
    tell_at: int = FIRST_PUBLISHED_AT
    evidence: list[str] = []  # ids of the latest events that count against the model, newest last
    bad_at: int = 0  # number of failures and patterns at which the profile is published next


class FailedScenario(msgspec.Struct, array_like=True):
    """Scenario in which a tool failed, and the time (ms) of its latest failure."""

    text: str
    at: int


class WordRecord(msgspec.Struct, array_like=True):
    """Failures of a tool at scenarios that contain a word."""

    failures: int  # number of capability failures
    until: int  # time (ms) up to which they count and a tag holds


class QualityRecord(msgspec.Struct, array_like=True):
    """Quality record of one tool."""

    score: float  # 0 to 1
    failures: int = 0  # counted failures since the score was last at its registered value; determines the surcharge
    raised: float = 0.0  # registered score set by an operator; 0 if that of the rules holds
    words: dict[str, WordRecord] = {}  # records of content words of failed scenarios
    scenarios: list[FailedScenario] = []  # failed scenarios, oldest first
    last_failed: int = 0  # time (ms) of the last counted failure
    published_score: float = 0.0  # score published last
    published: bool = False  # whether the `state` topic holds a record of the tool
    missed: int = 0  # consecutive latest calls that did not reach the tool, at most `unavailable_after`
    missed_at: int = 0  # time (ms) of the last of them
    published_down_until: int = 0  # published time (ms) until which the tool is unavailable; 0 if it is not


class FleetReport(msgspec.Struct, array_like=True):
    """Call counts of one tool in one workspace, and the latest report of them to the fleet."""

    users: list[str] = []  # ids of the users who call it here, in the order of their first call
    until: int = 0  # end of the newest bucket, milliseconds
    tally: list[int] = []  # calls and failures of the newest bucket, then those of the earlier buckets
    reported_state: str = ""  # trust state reported last; empty if no report is open
    reported_calls: int = 0  # number of calls reported last
    reported_failures: int = 0  # number of failures reported last
    reported_until: int = 0  # end of the newest bucket at the last report, milliseconds


class ToolState(KeyState):
    """State of one scope: its circuit, its own trust record and those of its fine keys."""

    workspace_id: str = ""
    scope: str = ""
    breaker: BreakerRecord = msgspec.field(default_factory=BreakerRecord)
    trust: TrustRecord | None = None
    # trust records by fine key: for a tool those that belong to no service, for a service those of its tools. At most
    # `max_fine_keys`; calls of further keys count in the tool's or service's record alone.
    fine: dict[str, TrustRecord] = {}
    recent_ids: list[int] = []  # digests of the latest commands and appended events, to recognise a repeat
    origins: dict[int, int] = {}  # per partition of `events`, the origin of the last outcome folded
    # `mcp`, `domain` or `program` for services, from the last outcome; used with `plugin_name` to find rules for
    # commands
    kind: str = ""
    plugin_name: str = ""
    # profiles by failure key and model; at most `MAX_MODEL_KEYS` keys with `MAX_MODELS` models each
    models: dict[str, dict[str, KeyProfile]] = {}
    model_suggestions: list[int] = []  # digests of (session, key) for which another model has been suggested
    # quality record; None while the score is the registered one and nothing needs to be remembered
    quality: QualityRecord | None = None
    fleet_report: FleetReport | None = None  # counts and reports for the fleet, of a tool or a service as a whole
    keyed: bool = False  # whether the tool has had calls with their own fine key
    # services that keep fine keys of the tool; at most `MAX_SERVICES`, the oldest is dropped first
    services: list[str] = []
    ages_at: int = 0  # time (ms) at which the evidence of a key has aged, or earlier; 0: of none
    command_reports: dict[str, FleetReport] = {}  # the same for commands of a shell, by fine key
    acknowledged: dict[str, AcknowledgedIncident] = {}  # by subject of the incident; at most `MAX_ACKNOWLEDGED`

    @property
    def observed(self) -> bool:
        """Whether it is of a service behind a shell: reported, and never asked about or refused."""
        return self.kind == "program"

    @property
    def circuit_mode(self) -> BreakerMode:
        """Mode of its circuit; that of a service behind a shell is not enforced."""
        mode = self.breaker.mode
        return BreakerMode.OBSERVE if self.observed and mode is BreakerMode.ENFORCE else mode

    @property
    def kind_of_scope(self) -> str:
        """Kind of the scope: `tool`, `service` or `tier`."""
        return self.scope.partition(":")[0]

    @property
    def name(self) -> str:
        """Name of the tool, service or tier."""
        return self.scope.partition(":")[2]


class ToolFold(msgspec.Struct, frozen=True, gc=False):
    """Arguments of the fold of one record: state, time, rules and emitter."""

    state: ToolState
    at: int  # stream time, milliseconds
    rules: RuleSet
    emit: OutputEmitter

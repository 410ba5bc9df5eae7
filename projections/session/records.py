"""State records of one session, apart from the detectors' counts, and the context of a fold. Their size is bounded.

New fields are only appended, so that older, shorter snapshots of the same version still load.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeVar

import msgspec

from ...rules.rules import RuleSet
from ...schemas.vocabulary import PatternSeverity, PatternType, ToolClass
from ..calls.programs import NOTHING_ASKED, CommandRequest
from ..emitter import OutputEmitter
from ..stage import KeyState
from .novelty import NO_REQUEST, CallRequest
from .steps import AgentSteps, FinishedStep

# Maximum number of calls in flight per session; beyond it the oldest is dropped, and its finish has no start
MAX_OPEN_CALLS = 256

MAX_CLOSED_CALLS = 64  # Closed call ids remembered to recognise a second finish
ID_BYTES = 6  # Bytes of the digest of a remembered id

# Event ids remembered to recognise repeated events that have different offsets (a publisher's retry)
MAX_RECENT_IDS = 128

LOST_AFTER_MS = 86_400_000  # Age (one day) at which an unfinished call without a stated deadline is closed as lost

MAX_ACTIVE_PATTERNS = 32
MAX_NUDGE_MARKS = 16
MAX_TOOLS = 64  # Maximum number of tools counted by name per session; calls of further tools count only in the total
MAX_ASKED = 16  # Maximum number of calls that wait for a person and have not started
MAX_ISSUED = 32  # Maximum number of nudges that feedback can refer to

MAX_FALSE_ALARMS = 32
MAX_OVERRIDES = 16  # Maximum number of limit overrides per execution, named as causes in its decisions
SEVERITIES = tuple(PatternSeverity)  # Severities from 1 minor to 3 severe, by the number minus 1

_EFFECTIVE = frozenset({ToolClass.ACTION, ToolClass.UNKNOWN})

AnyDetector = TypeVar("AnyDetector")


class CallRecord(msgspec.Struct, array_like=True):
    """A started and unfinished call, with all data that its finish needs."""

    call_id: str
    event_id: str
    tool_name: str
    started_ms: int
    deadline_ms: int  # time at which it is overdue, milliseconds; moved by the time it waited for a person
    step: int
    fingerprint: int
    fine_key: str
    service: str = ""
    kind: str = ""
    tool_class: ToolClass = ToolClass.UNKNOWN
    class_declared: bool = False
    dangerous: bool = False  # whether its failure is a security failure
    plugin_name: str = ""
    tier: str = ""
    scenario: str = ""
    deadline_stated: bool = False  # whether the publisher stated the deadline; the call is closed then as timed out
    suspect: bool = False  # whether its failure is a security failure if the failure's message indicates it
    waiting_since: int = 0  # start of the wait for a person's permission, milliseconds; 0 if it does not wait
    waited_ms: int = 0  # total time of finished waits, milliseconds
    overdue_seen: bool = False  # whether its deadline, not stated, has passed and `stalled_call` has handled it
    agent_id: str = ""  # agent that made it; empty for the main agent
    risky: bool = False  # like `dangerous` at a lesser level: a failure escalates its key and never blocks it
    runs: str = ""  # `shell` or `code` if the tool runs these for its caller; else empty
    command: str = ""  # command word of a shell call
    approvals: tuple[str, ...] = ()  # ids of approvals by which it may pass without asking
    programs: tuple[str, ...] = ()  # command words of a shell call
    waits: bool = False  # whether it waits for something, so that an unchanged result is no repetition by itself
    only_waits: bool = False  # whether it does nothing else
    request: CallRequest = NO_REQUEST  # what it asks for
    asked: CommandRequest = NOTHING_ASKED
    edits: bool = False  # whether its command line edits a file before what may fail
    summary: str = ""  # beginning of its request in one line, without secrets

    @property
    def may_change(self) -> bool:
        """Whether its effect is unknown: it may change something."""
        return self.tool_class is ToolClass.UNKNOWN

    @property
    def has_effect(self) -> bool:
        """Whether it acts, or its effect is unknown: to make it again may be meant."""
        return self.tool_class in _EFFECTIVE

    @property
    def due_ms(self) -> int:
        """Next due time, milliseconds: its deadline (timed out or overdue), or the end of the day (lost)."""
        if self.waiting_since:
            return self.waiting_since + LOST_AFTER_MS
        return self.started_ms + self.waited_ms + LOST_AFTER_MS if self.overdue_seen else self.deadline_ms

    @property
    def ends_when_due(self) -> bool:
        """Whether it is closed when it falls due; otherwise it is only overdue then."""
        return self.deadline_stated or self.overdue_seen or bool(self.waiting_since)


class ActivePattern(msgspec.Struct, array_like=True):
    """An open streak of a detected pattern."""

    pattern: str
    fingerprint: int
    pattern_id: str
    severity: int  # highest reported severity, 1 minor to 3 severe
    count: int
    first_ms: int
    last_step: int
    tool_name: str
    raised: int = 0  # 1 if the last nudge was ignored, so that the next one at the same severity is a step stronger
    nudged_at: int = -1  # number of calls at the last nudge; -1 never
    nudged_severity: int = 0  # severity of that nudge
    required_tool: str = ""  # tool that the model should call, where the pattern knows
    variant: str = ""  # names its nudge texts among the detector's `variants`; empty: its own `texts`
    proven: bool = False  # whether the repetition is a proven waste, so that it may stop the run
    request: str = ""  # the call that shows it, in one line without secrets; empty without one
    for_model: bool = True  # whether the model gets nudges about it
    hint_only: bool = False  # whether something may have changed, so that its nudges stay gentle
    asked: str = ""  # tool of that call, where the request is no command or program that speaks for itself


class NudgeMark(msgspec.Struct, array_like=True):
    """Last nudge of a closed streak and its severity, kept because the cooldown continues after the streak."""

    pattern: str
    fingerprint: int
    nudged_at: int
    severity: int


class PendingNudge(msgspec.Struct, array_like=True):
    """A nudge whose effect has not been judged yet."""

    nudge_id: str
    pattern: str
    fingerprint: int
    at_call: int  # number of calls when it was delivered or, while it waits, issued
    wants_action: bool = False
    waiting: int = 0  # its severity while no answer has carried it; 0 once one has


class IssuedNudge(msgspec.Struct, array_like=True):
    """A nudge that feedback can still mark as a false alarm: digest of its id, pattern and tool."""

    id_digest: int
    pattern: str
    fingerprint: int
    tool_name: str


class FalseAlarm(msgspec.Struct, array_like=True):
    """Number of false alarms of a pattern for a tool."""

    pattern: str
    tool_name: str
    count: int = 0


class GuaranteeRecord(msgspec.Struct, array_like=True):
    """One execution: from its first recursive call, or from the first override, to the end of its session."""

    started_at: int  # when it began, milliseconds
    cost_usd: float = 0.0  # US dollars spent by its finished calls
    recursive_calls: int = 0  # recursive calls started
    completed: int = 0  # calls that succeeded; a partial result rests on them
    # cost, seconds and calls as overridden; None: the rules' limit holds
    limits: list[float | None] = msgspec.field(default_factory=lambda: [None, None, None])
    # bits of the decisions emitted: 1, 2, 4 warned and 8, 16, 32 violated, of cost, duration and calls
    emitted: int = 0
    overrides: list[str] = []  # ids of the overrides used, newest last


class FeedbackRecord(msgspec.Struct, array_like=True):
    """False alarms of a session, and the nudges that feedback can still refer to."""

    issued: list[IssuedNudge] = []  # nudges that a judgement can still refer to, oldest first
    false_alarms: list[FalseAlarm] = []  # how often each pattern was judged one, by tool
    muted: list[tuple[str, int]] = []  # patterns and fingerprints judged false alarms; not nudged again
    tells_deliveries: bool = False  # whether the publisher tells which nudges an answer carried


class TurnRecord(msgspec.Struct, array_like=True):
    """The open turn of a session, or its last turn."""

    index: int = 0  # its number
    known: bool = False  # the number is known: an event has named it, or turns are published
    open: bool = False  # it has begun and not ended
    stalled: bool = False  # a pattern was seen in it
    ends_published: bool = False  # the publisher is known to end its turns: it has ended one, or has said that it does
    since_ms: int = 0  # when the open turn began, milliseconds; 0 none is open
    event_id: str = ""  # event with which it began


class SessionRecord(KeyState):
    """State of a session without detectors: ids, calls in flight, turn, and the current agent's steps and patterns.

    `SessionState` adds the detectors, which see a session as this record.
    """

    workspace_id: str = ""
    user_id: str = ""
    model: str = ""  # the model that acted last, as far as it is known
    # models that may be suggested, as the platform last declared them; None: it has declared none
    models: tuple[str, ...] | None = None
    overrides: str = ""  # settings that the session overrides, as JSON; empty when none
    arrived: int = 0  # when the latest event of its own arrived, milliseconds; 0 before the first
    # digests (`ID_BYTES`) of the latest event ids, oldest first
    recent_ids: bytearray = msgspec.field(default_factory=bytearray)
    open_calls: list[CallRecord] = []
    # digests of the ids of the latest closed calls, oldest first
    closed_calls: bytearray = msgspec.field(default_factory=bytearray)
    lone_calls: list[tuple[str, int]] = []  # ids and times (ms) of finishes that came without a start
    # calls that wait for a person and have not started: id, and since when (milliseconds)
    asked: list[tuple[str, int]] = []
    next_deadline: int = 0  # when the next call in flight falls due (`CallRecord.due_ms`), milliseconds; 0 none
    calls: int = 0
    failed_calls: int = 0  # of `calls`, those that failed and were not expected to
    neutral_calls: int = 0  # of `calls`, those that say nothing
    guarantees: GuaranteeRecord | None = None  # what its execution has spent; absent while no limits apply to it
    turn: TurnRecord = msgspec.field(default_factory=TurnRecord)
    # tools called in this session and how often in this turn; those that do not exist are left out
    tools: dict[str, int] = {}
    # when a detector next has something to report because time has passed, milliseconds; 0 nothing is due
    stall_due: int = 0
    feedback: FeedbackRecord = msgspec.field(default_factory=FeedbackRecord)
    agent: str = ""  # the agent that acted last; empty: the main one
    steps: AgentSteps = msgspec.field(default_factory=AgentSteps)  # steps of the agent that acted last
    active: list[ActivePattern] = []  # its open patterns
    pending_nudges: list[PendingNudge] = []  # its nudges whose effect is still open
    nudged: list[NudgeMark] = []  # when its closed patterns were last nudged
    finished_ms: int = 0  # time of the latest finish of a call, milliseconds; 0 none

    def schedule(self) -> None:
        """Recompute the due time of the next open call."""
        calls = self.open_calls
        self.next_deadline = min([call.due_ms for call in calls]) if calls else 0

    def act_as(self, agent_id: str) -> None:
        """Make this agent the current one."""
        raise NotImplementedError

    def detector(self, kind: type[AnyDetector]) -> AnyDetector:
        """Detector of a class that belongs to the current agent."""
        raise NotImplementedError


PREPARED_HASH = blake2b(digest_size=ID_BYTES)  # Hash to copy for the digest of an id, which is cheaper than a new one


def id_digest(name: str) -> bytes:
    """Return the digest of an id that is remembered."""
    hashed = PREPARED_HASH.copy()
    hashed.update(name.encode())
    return hashed.digest()


def place_of(digest: bytes, digests: bytearray) -> int:
    """Return the position of a digest among others, -1 without it; a match that spans two others does not count."""
    position = digests.find(digest)
    while position >= 0 and position % ID_BYTES:
        position = digests.find(digest, position + 1)
    return position


class PatternSighting(NamedTuple):
    """A detector's report of its pattern in the current event, with a severity from 1 minor to 3 severe."""

    pattern: PatternType
    severity: int
    # identifies what repeats; 0 for patterns without one. Pattern and fingerprint identify the streak.
    fingerprint: int
    repetitions: int  # number of repetitions so far
    tools: Sequence[str]  # tools of the repetition, oldest first
    event_ids: Sequence[str]  # evidence, newest last
    expected_action: str = ""  # action that the model should take instead; empty if unknown
    required_tool: str = ""  # tool that the model should call; empty if unknown
    since_ms: int = 0  # start of the first repetition, milliseconds; 0: time of the current event
    variant: str = ""  # key of the nudge texts in the detector's `variants`; empty: its own `texts`
    agent_id: str | None = None  # agent that shows the pattern; None: the current agent
    # whether the repetition is a proven waste: equal requests with equal results or the same failure, no evidence of
    # change and no wait between; only then a severe one may stop the run
    proven: bool = False
    for_model: bool = True  # whether the model gets a nudge about it
    for_user: bool = False  # whether a person is told, whatever the severity
    # whether something may have changed between the repetitions, so that its nudges stay gentle
    hint_only: bool = False


class EventContext(msgspec.Struct, gc=False):
    """Context of the fold of one event; `emit` holds its id (`cause`) and its time (`at`, milliseconds)."""

    state: SessionRecord
    session_id: str
    rules: RuleSet
    emit: OutputEmitter
    sightings: list[PatternSighting] = []  # sightings that detectors have appended and that have not been emitted yet
    call: CallRecord | None = None  # the call that the event starts or finishes; None for other events
    # calls equal to the one that the event finishes, in the latest steps of its agent, oldest first
    same: Sequence[FinishedStep] = ()

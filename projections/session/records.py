"""What is remembered of one session, apart from what the detectors count. Bounded: it does not grow with its length.

Fields are only ever appended: older snapshots of the same version are shorter and still load.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ...schemas.vocabulary import ToolClass
from ..stage import KeyState
from .steps import Steps

MAX_OPEN_CALLS = 256
"""Calls in flight remembered per session; the oldest beyond that is forgotten, and its finish counts alone."""

MAX_CLOSED_CALLS = 64
"""Closed call ids remembered to recognise a second finish."""

MAX_RECENT_IDS = 128
"""Event ids remembered to recognise a repeated event that no offset gives away (a publisher's retry)."""

LOST_AFTER_MS = 86_400_000
"""A call without a stated deadline that has not finished a day after its start is closed as lost."""

MAX_ACTIVE_PATTERNS = 32
MAX_NUDGE_MARKS = 16
MAX_TOOLS = 64
"""Tools a session remembers by name; calls of further ones count in all, not each."""

MAX_ASKED = 16
"""Calls that wait for a person and have not started."""

MAX_ISSUED = 32
"""Nudges that feedback can still refer to."""

MAX_FALSE_ALARMS = 32
MAX_OVERRIDES = 16
"""Overrides of limits remembered per execution, to name them in what is decided."""

AnyDetector = TypeVar("AnyDetector")


class OpenCall(msgspec.Struct, array_like=True):
    """A call that has started and not finished, with all its finish will need.

    Attributes:
        deadline_ms: when it is overdue, milliseconds, without the time it has waited for a person.
        deadline_stated: the publisher stated the deadline: the call is closed then as timed out.
        dangerous: if it fails, it failed at something that no agent should do.
        suspect: the same, if its failure says so.
        waiting_since: since when it waits for a person's permission, milliseconds; 0 it does not.
        waited_ms: how long it has waited so far.
        overdue_seen: its deadline was not stated and has passed; `stalled_call` has seen it.
        agent_id: the agent that made it; empty: the main one.
        risky: the same to a lesser degree: it escalates its key and never blocks it.
        runs: what the tool runs for its caller: `shell`, `code` or nothing of the kind.
        command: command word of a shell call.
        approvals: approvals by which it may pass without being asked about.
    """

    call_id: str
    event_id: str
    tool_name: str
    started_ms: int
    deadline_ms: int
    step: int
    fingerprint: int
    fine_key: str
    service: str = ""
    kind: str = ""
    tool_class: ToolClass = ToolClass.UNKNOWN
    class_declared: bool = False
    dangerous: bool = False
    plugin_name: str = ""
    tier: str = ""
    scenario: str = ""
    deadline_stated: bool = False
    suspect: bool = False
    waiting_since: int = 0
    waited_ms: int = 0
    overdue_seen: bool = False
    agent_id: str = ""
    risky: bool = False
    runs: str = ""
    command: str = ""
    approvals: tuple[str, ...] = ()

    @property
    def due_ms(self) -> int:
        """When it next falls due, milliseconds: timed out or overdue at its deadline, lost after a day."""
        if self.waiting_since:
            return self.waiting_since + LOST_AFTER_MS
        return self.started_ms + self.waited_ms + LOST_AFTER_MS if self.overdue_seen else self.deadline_ms

    @property
    def ends_when_due(self) -> bool:
        """Whether it is closed when it falls due; otherwise it is only overdue then."""
        return self.deadline_stated or self.overdue_seen or bool(self.waiting_since)


class ActivePattern(msgspec.Struct, array_like=True):
    """A detected pattern the model has not broken out of.

    Attributes:
        severity: highest step reported, 1 minor to 3 severe.
        raised: 1 when the last nudge was ignored: at the same severity the next one is a step stronger.
        nudged_at: calls made when it was last nudged; -1 never.
        nudged_severity: severity of that nudge.
        required_tool: tool that the model should call, where the pattern knows.
        variant: names its nudge texts among the detector's `variants`; empty: its own `texts`.
    """

    pattern: str
    fingerprint: int
    pattern_id: str
    severity: int
    count: int
    first_ms: int
    last_step: int
    tool_name: str
    raised: int = 0
    nudged_at: int = -1
    nudged_severity: int = 0
    required_tool: str = ""
    variant: str = ""


class NudgeMark(msgspec.Struct, array_like=True):
    """When a streak that is over was last nudged, and how strongly: the cooldown outlives the streak."""

    pattern: str
    fingerprint: int
    nudged_at: int
    severity: int


class PendingNudge(msgspec.Struct, array_like=True):
    """A nudge whose effect is still open."""

    nudge_id: str
    pattern: str
    fingerprint: int
    at_call: int
    wants_action: bool = False


class IssuedNudge(msgspec.Struct, array_like=True):
    """A nudge that may still be called a false alarm: digest of its id, and what it was about."""

    id_digest: int
    pattern: str
    fingerprint: int
    tool_name: str


class FalseAlarm(msgspec.Struct, array_like=True):
    """How often a pattern was judged a false alarm for a tool."""

    pattern: str
    tool_name: str
    count: int = 0


class GuaranteeRecord(msgspec.Struct, array_like=True):
    """One execution: from its first recursive call, or from the first override, to the end of its session.

    Attributes:
        started_at: when it began, milliseconds.
        cost_usd: US dollars spent by its finished calls.
        recursive_calls: recursive calls started.
        completed: calls that succeeded; a partial result rests on them.
        limits: cost, seconds and calls as overridden; None: the rules' limit holds.
        told: bits of what has been said: 1, 2, 4 warned and 8, 16, 32 violated, of cost, duration and calls.
        overrides: ids of the overrides used, newest last.
    """

    started_at: int
    cost_usd: float = 0.0
    recursive_calls: int = 0
    completed: int = 0
    limits: list[float | None] = msgspec.field(default_factory=lambda: [None, None, None])
    told: int = 0
    overrides: list[str] = []


class Feedback(msgspec.Struct, array_like=True):
    """What has been judged a false alarm in a session, and what still may be.

    Attributes:
        issued: nudges that a judgement can still refer to, oldest first.
        false_alarms: how often each pattern was judged one, by tool.
        muted: patterns and fingerprints judged false alarms; not nudged again.
    """

    issued: list[IssuedNudge] = []
    false_alarms: list[FalseAlarm] = []
    muted: list[tuple[str, int]] = []


class Turn(msgspec.Struct, array_like=True):
    """The turn of a session that is open, or was last.

    Attributes:
        index: its number.
        known: the number is known: an event has named it, or turns are published.
        open: it has begun and not ended.
        stalled: a pattern was seen in it.
        ends_published: the publisher is known to end its turns: it has ended one, or has said that it does.
        since_ms: when the open turn began, milliseconds; 0 none is open.
        event_id: event with which it began.
    """

    index: int = 0
    known: bool = False
    open: bool = False
    stalled: bool = False
    ends_published: bool = False
    since_ms: int = 0
    event_id: str = ""


class SessionRecord(KeyState):
    """What is known of a session: who, its calls in flight, its turn, and what the agent that acted last does.

    `SessionState` adds the detectors, which know a session as this record.

    Attributes:
        model: the model that acted last, as far as it is known.
        models: models that may be suggested, as the platform last declared them; None: it has declared none.
        overrides: settings that the session overrides, as JSON; empty when none.
        arrived: when the latest event of its own arrived, milliseconds; 0 in older snapshots.
        recent_ids: 8-byte digests of the latest event ids, oldest first.
        closed_calls: digests of the ids of the latest closed calls.
        lone_calls: ids and times (ms) of finishes that came without a start.
        asked: calls that wait for a person and have not started: id, and since when (milliseconds).
        next_deadline: when the next call in flight falls due (`OpenCall.due_ms`), milliseconds; 0 none.
        failed_calls: of `calls`, those that failed.
        neutral_calls: of `calls`, those that say nothing.
        guarantees: what its execution has spent; absent while no limits apply to it.
        tools: tools called in this session and how often in this turn; those that do not exist are left out.
        stall_due: when a detector next has something to report because time has passed, milliseconds; 0 nothing is due.
        agent: the agent that acted last; empty: the main one.
        steps: steps of the agent that acted last.
        active: its open patterns.
        pending_nudges: its nudges whose effect is still open.
        nudged: when its closed patterns were last nudged.
    """

    workspace_id: str = ""
    user_id: str = ""
    model: str = ""
    models: tuple[str, ...] | None = None
    overrides: str = ""
    arrived: int = 0
    recent_ids: bytearray = msgspec.field(default_factory=bytearray)
    open_calls: list[OpenCall] = []
    closed_calls: list[int] = []
    lone_calls: list[tuple[str, int]] = []
    asked: list[tuple[str, int]] = []
    next_deadline: int = 0
    calls: int = 0
    failed_calls: int = 0
    neutral_calls: int = 0
    guarantees: GuaranteeRecord | None = None
    turn: Turn = msgspec.field(default_factory=Turn)
    tools: dict[str, int] = {}
    stall_due: int = 0
    feedback: Feedback = msgspec.field(default_factory=Feedback)
    agent: str = ""
    steps: Steps = msgspec.field(default_factory=Steps)
    active: list[ActivePattern] = []
    pending_nudges: list[PendingNudge] = []
    nudged: list[NudgeMark] = []

    def schedule(self) -> None:
        """Work out anew when the next open call falls due."""
        calls = self.open_calls
        self.next_deadline = min([call.due_ms for call in calls]) if calls else 0

    def act_as(self, agent_id: str) -> None:
        """Make this agent the one that acts."""
        raise NotImplementedError

    def detector(self, kind: type[AnyDetector]) -> AnyDetector:
        """The detector of a kind, as the agent that acts has it."""
        raise NotImplementedError

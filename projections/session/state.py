"""State of one session. Everything is bounded: what a session keeps does not grow with its length.

Fields are only ever appended: older snapshots are shorter and still load.
"""

from __future__ import annotations

import msgspec

from ...schemas.vocabulary import ToolClass
from ..stage import KeyState
from .guarantee_state import GuaranteeRecord

MAX_OPEN_CALLS = 256
"""Calls in flight remembered per session; the oldest beyond that is forgotten, and its finish counts alone."""

MAX_CLOSED_CALLS = 64
"""Closed call ids remembered to recognise a second finish."""

MAX_RECENT_IDS = 128
"""Event ids remembered to recognise a repeated event that no offset gives away (a publisher's retry)."""

MAX_ACTIVE_PATTERNS = 32
MAX_NUDGE_MARKS = 16
MAX_RETRIES = 16
MAX_ERROR_STREAKS = 16
MAX_STREAK_CALLS = 32
"""Distinct calls of a same-error streak remembered; an older one counts again."""

MAX_PAGINGS = 4
"""Series of pages followed at a time; reads of several files may take turns."""

MAX_TOOLS = 64
"""Tools a session remembers by name; calls of further ones count in all, not each."""

MAX_NAMED_TOOLS = 8
MAX_POLICIES = 256
MAX_OVERDUE = 16
MAX_ASKED = 16
"""Calls that wait for a person and have not started."""

MAX_AGENTS = 16
"""Agents of a session whose streaks are kept beside those of the agent that acted last."""

MAX_SAID = 64
"""Text blocks remembered, as digests."""

MAX_ISSUED = 32
"""Nudges that feedback can still refer to."""

MAX_FALSE_ALARMS = 32
MAX_CYCLE = 6
"""Longest cycle of steps that the alternating detector sees."""


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


class Done(msgspec.Struct, array_like=True):
    """One finished call in the window of steps: what it was, what it gave (0: unknown), and when it started."""

    step: int
    call: int
    result: int
    tool_name: str
    event_id: str
    at_ms: int = 0


class Retry(msgspec.Struct, array_like=True):
    """A call that keeps failing the same way, and since when (milliseconds)."""

    call: int
    error: int
    step: int
    tool_name: str
    event_ids: list[str]
    count: int = 1
    since_ms: int = 0


class ActivePattern(msgspec.Struct, array_like=True):
    """A detected pattern the model has not broken out of.

    Attributes:
        severity: highest step reported, 1 minor to 3 severe.
        raised: 1 when the last nudge was ignored: at the same severity the next one is a step stronger.
        nudged_at: calls made when it was last nudged; -1 never.
        nudged_severity: severity of that nudge.
        required_tool: tool that the model should call, where the pattern knows.
        text: names its nudge texts, where they are not those of the pattern.
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
    text: str = ""


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


class ErrorStreak(msgspec.Struct, array_like=True):
    """Calls of one tool, with different arguments, that fail the same way.

    Attributes:
        calls: fingerprints of the latest of them, so that the same call again is not counted twice.
        since_ms: when the first of them started, milliseconds.
    """

    tool_name: str
    error: int
    calls: list[int]
    event_ids: list[str]
    step: int
    count: int = 1
    since_ms: int = 0


class Paging(msgspec.Struct, array_like=True):
    """Calls that are the same but for numbers that grow.

    Attributes:
        shape: fingerprint of the call without its numbers.
        numbers: the numbers of the latest call, in the order of their names.
        since_ms: when the first of them started, milliseconds.
    """

    shape: int
    numbers: list[int]
    tool_name: str
    event_ids: list[str]
    count: int = 1
    since_ms: int = 0


class NamedTool(msgspec.Struct, array_like=True):
    """A tool that was named since it was last called, and since when (milliseconds)."""

    tool_name: str
    event_ids: list[str]
    count: int = 0
    since_ms: int = 0


class Prerequisite(msgspec.Struct, array_like=True):
    """How the session stands to one policy.

    Attributes:
        met_turn: turn of the latest success of the required tool; -1 never.
        violations: since then, or since the user last spoke.
        since_ms: when the first of these happened, milliseconds.
    """

    met_turn: int = -1
    violations: int = 0
    event_ids: list[str] = []
    since_ms: int = 0


class OverdueCall(msgspec.Struct, array_like=True):
    """A call that is past its deadline and whose real finish may still come.

    Attributes:
        started_ms: when it started, milliseconds; later by the time it waited for a person.
        multiple: multiples of its deadline told so far.
    """

    call_id: str
    event_id: str
    tool_name: str
    fingerprint: int
    started_ms: int
    deadline_ms: int
    multiple: int = 0
    agent_id: str = ""


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


class AgentStreaks(msgspec.Struct, array_like=True):
    """State of the detectors for one agent of a session: the fields of `SessionState` of the same names.

    Attributes:
        calls: calls of the session when this agent last acted.
    """

    calls: int = 0
    step: int = 0
    step_open: int = 0
    step_sealed: bool = True
    step_mix: int = 0
    progress_step: int = 0
    window: list[Done] = []
    retries: list[Retry] = []
    cycle_tail: list[int] = []
    cycle_runs: list[int] = msgspec.field(default_factory=lambda: [0] * MAX_CYCLE)
    introspections: list[str] = []
    introspection_step: int = -1
    introspection_count: int = 0
    introspection_since: int = 0
    planning_step: int = -1
    planning_count: int = 0
    plannings: list[str] = []
    planning_since: int = 0
    stale_reads: int = 0
    stale_since: int = 0
    reads: int = 0
    reads_since: int = 0
    read_step: int = -1
    read_ids: list[str] = []
    explores: bool = True
    announced: int = 0
    announce_ids: list[str] = []
    announced_this_turn: bool = False
    announced_since: int = 0
    unconfirmed: str = ""
    unconfirmed_since: int = 0
    phrased: bool = False
    unphrased: bool = False
    active: list[ActivePattern] = []
    pending_nudges: list[PendingNudge] = []
    nudged: list[NudgeMark] = []
    error_streaks: list[ErrorStreak] = []
    unknown_calls: int = 0
    unknown_step: int = 0
    unknown_tools: list[str] = []
    unknown_ids: list[str] = []
    unknown_since: int = 0
    paging: list[Paging] = []
    spoken: int = 0
    spoken_ids: list[str] = []
    spoken_since: int = 0
    said: dict[int, int] = {}
    said_ids: list[str] = []
    said_since: int = 0
    text_loop: int = 0
    named_tools: list[NamedTool] = []


class SessionState(KeyState):
    """All that is remembered of one session. Streaks are those of the agent that acted last.

    Attributes:
        recent_ids: 8-byte digests of the latest event ids, oldest first.
        step: number of the current step; calls that start before any of a batch has finished share one.
        step_open: calls of the current step still open.
        step_mix: sum of the fingerprints of its finished calls, whatever their order.
        lone_calls: ids and times (ms) of finishes that came without a start.
        step_sealed: a call of the current step has finished, so the next start begins a new step.
        progress_step: step of the last progress; repetition before it does not count.
        cycle_tail: fingerprints of the latest steps, newest last.
        overrides: settings that the session overrides, as JSON; empty when none.
        explores: nothing but reads since the user spoke.
        cycle_runs: for periods 1 to 6, how many steps in a row equalled the step one period earlier.
        guarantees: what its execution has spent; absent while no limits apply to it.
        failed_calls: of `calls`, those that failed.
        neutral_calls: of `calls`, those that say nothing.
        unknown_calls: calls to tools that do not exist, none of them a window of steps after the one before.
        spoken: messages since the last call.
        said: digests of text blocks and how often each was said since the last news, latest said last.
        text_loop: digest of the block that the latest message repeated; 0 none.
        tools: tools called in this session and how often in this turn; those that do not exist are left out.
        next_deadline: when the next call in flight falls due (`calls.due_of`), milliseconds; 0 none.
        ends_turns: the publisher is known to end its turns: it has ended one, or has said that it does.
        leaves_turns_open: no longer read.
        silent_since: since when the model owes a sign of life, milliseconds; 0 it owes none.
        silence_told: multiples of the longest silence told so far.
        turn_since: when the open turn began, milliseconds.
        turn_told: multiples of the longest turn told so far.
        user_at: calls begun before this time (milliseconds) were cut off: the user spoke, a turn began or ended.
        stall_due: when the next silence, turn or overdue call is to be told, milliseconds; 0 nothing is.
        muted: patterns and fingerprints judged false alarms; not nudged again.
        turn_stalled: a pattern was seen in the turn under way.
        asked: calls that wait for a person and have not started: id, and since when (milliseconds).
        models: models that may be suggested, as the platform last declared them; None: it has declared none.
        agent: the agent that acted last; empty: the main one.
        agents: streaks of the other agents, the one that acted longest ago first.
        turn_known: `turn_index` is known: an event has named it, or turns are published.
        introspection_since, planning_since, stale_since, reads_since, announced_since, unknown_since, spoken_since,
            said_since: when the first event of the streak happened, milliseconds.
        phrased: one of the announcements said so in words.
        unphrased: a message that said nothing of the kind has been followed by another one.
        unconfirmed: id of the latest message if it announces work in case another message follows; empty if not.
        unconfirmed_since: when it was said, milliseconds.
        arrived: when the latest event of its own arrived, milliseconds; 0 in older snapshots.
    """

    workspace_id: str = ""
    user_id: str = ""
    model: str = ""
    turn_index: int = 0
    recent_ids: bytearray = msgspec.field(default_factory=bytearray)
    open_calls: list[OpenCall] = []
    closed_calls: list[int] = []
    lone_calls: list[tuple[str, int]] = []
    next_deadline: int = 0
    calls: int = 0
    step: int = 0
    step_open: int = 0
    step_sealed: bool = True
    step_mix: int = 0
    progress_step: int = 0
    window: list[Done] = []
    retries: list[Retry] = []
    cycle_tail: list[int] = []
    cycle_runs: list[int] = msgspec.field(default_factory=lambda: [0] * MAX_CYCLE)
    introspections: list[str] = []
    introspection_step: int = -1
    introspection_count: int = 0
    stale_reads: int = 0
    reads: int = 0
    read_step: int = -1
    read_ids: list[str] = []
    announced: int = 0
    announce_ids: list[str] = []
    announced_this_turn: bool = False
    active: list[ActivePattern] = []
    pending_nudges: list[PendingNudge] = []
    nudged: list[NudgeMark] = []
    turn_open: bool = False
    guarantees: GuaranteeRecord | None = None
    failed_calls: int = 0
    neutral_calls: int = 0
    planning_step: int = -1
    planning_count: int = 0
    plannings: list[str] = []
    error_streaks: list[ErrorStreak] = []
    unknown_calls: int = 0
    unknown_step: int = 0
    unknown_tools: list[str] = []
    unknown_ids: list[str] = []
    paging: list[Paging] = []
    spoken: int = 0
    spoken_ids: list[str] = []
    said: dict[int, int] = {}
    said_ids: list[str] = []
    text_loop: int = 0
    tools: dict[str, int] = {}
    turn_calls: int = 0
    named_tools: list[NamedTool] = []
    prerequisites: dict[str, Prerequisite] = {}
    ends_turns: bool = False
    leaves_turns_open: bool = False
    last_sign: str = ""
    silent_since: int = 0
    silence_told: int = 0
    turn_since: int = 0
    turn_event: str = ""
    turn_told: int = 0
    user_at: int = 0
    overdue: list[OverdueCall] = []
    stall_due: int = 0
    issued: list[IssuedNudge] = []
    false_alarms: list[FalseAlarm] = []
    muted: list[tuple[str, int]] = []
    turn_stalled: bool = False
    overrides: str = ""
    explores: bool = True
    asked: list[tuple[str, int]] = []
    models: tuple[str, ...] | None = None
    agent: str = ""
    agents: dict[str, AgentStreaks] = {}
    turn_known: bool = False
    introspection_since: int = 0
    planning_since: int = 0
    stale_since: int = 0
    reads_since: int = 0
    announced_since: int = 0
    unknown_since: int = 0
    spoken_since: int = 0
    said_since: int = 0
    unconfirmed: str = ""
    unconfirmed_since: int = 0
    phrased: bool = False
    unphrased: bool = False
    arrived: int = 0

"""Records of the internal `standings` topic, from the session and tool stages to the fleet stage.

Keyed by the keys of the fleet's states: a user and a tool (`user:ada␟tool:bash`), or a model (`model:large-1`), so that
all records of one key are in one partition. Few records: healthy calls write none. Internal: written and read only by
trustfold; the shape may change with any release that also drains the topic.
"""

from __future__ import annotations

import msgspec

from .outcomes import US
from .vocabulary import PatternType, TrustState


class StandingBase(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Common fields of every record of the topic.

    Attributes:
        id: digest of the record that caused it.
        time_ms: effective time of the cause, milliseconds since the epoch.
        session_id: session of the cause; empty for operators.
        cause: id of the input event that caused the record.
        origin_topic: catalogue name of the topic that the writing stage read; empty: not caused by a record.
        origin_partition: partition of that topic.
        origin: position in that partition (offset and ordinal), increasing per topic and partition. After a crash
            records are written again at new offsets; the fleet stage drops those not above the highest origin it has
            folded of their topic and partition.
    """

    id: str
    time_ms: int
    session_id: str = ""
    cause: str = ""
    origin_topic: str = ""
    origin_partition: int = 0
    origin: int = -1

    @property
    def space(self) -> str:
        """Name of the sequence in which the origin increases."""
        return f"{self.origin_topic}/{self.origin_partition}"


class ToolStanding(StandingBase, kw_only=True, frozen=True, omit_defaults=True, tag="tool.standing"):
    """Trust and counts of a tool, a service or a command in one workspace; the latest record replaces earlier ones.

    Attributes:
        user_id: one of the users who have called it there.
        tool_name: name of the tool.
        workspace_id: id of the workspace.
        state: trust state of the tool as a whole.
        calls: calls in the fleet's window that count as success or failure by its rule.
        failures: number of these that failed.
        subject: trust key of what is not a tool as a whole; empty for a tool.
    """

    user_id: str
    tool_name: str
    workspace_id: str
    state: TrustState
    calls: int = 0
    failures: int = 0
    subject: str = ""

    @property
    def key(self) -> str:
        """Record key: user and tool, or user and key."""
        return f"user:{self.user_id}{US}{f'key:{self.subject}' if self.subject else f'tool:{self.tool_name}'}"


class ModelBehaved(StandingBase, kw_only=True, frozen=True, omit_defaults=True, tag="model.behaved"):
    """Statistics of a model in one session, to add to its profile.

    Attributes:
        model: name of the model.
        turns: number of turns that have ended.
        stalled_turns: number of these in which a pattern was detected or that stalled.
        pattern: a detected pattern; once per streak.
        nudges_sent: nudges issued.
        nudges_effective: nudges judged to have helped.
        nudges_judged: number of nudges with a verdict; nudges before a user message or the session's end get none.
        false_alarm: pattern reported as a false alarm, itself or its nudge.
    """

    model: str
    turns: int = 0
    stalled_turns: int = 0
    pattern: PatternType | None = None
    nudges_sent: int = 0
    nudges_effective: int = 0
    nudges_judged: int = 0
    false_alarm: PatternType | None = None

    @property
    def key(self) -> str:
        """Record key: the model."""
        return f"model:{self.model}"


class StandingDue(StandingBase, kw_only=True, frozen=True, omit_defaults=True, tag="standing.due"):
    """Timer record, appended when a deadline of a key has passed (docs/design/contracts.md#time-and-order).

    Attributes:
        key: key of the state.
    """

    key: str


Standing = ToolStanding | ModelBehaved | StandingDue
"""Union of all records on the `standings` topic."""

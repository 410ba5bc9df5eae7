"""Records of the internal `standings` topic: what the session and the tool stage tell the fleet stage.

Keyed by what the fleet keeps its states by: a user and a tool (`user:ada␟tool:bash`), or a model (`model:large-1`), so
everything about one of them arrives in one partition. Few records: nothing is told of a healthy call. Internal: only
trustfold writes and reads them; the shape may change with any release that also drains the topic.
"""

from __future__ import annotations

import msgspec

from .outcomes import US
from .vocabulary import Pattern, TrustState


class StandingBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """What every record of the topic carries.

    Attributes:
        id: derived from the record behind it.
        time_ms: effective time of the cause, milliseconds since the epoch.
        session_id: session of the cause; empty for operators.
        cause: id of the input event behind the record.
        origin_topic: catalogue name of the topic that the writing stage read when it told this; empty: no such record
            stands behind it.
        origin_partition: partition of that topic.
        origin: place in that partition (offset and ordinal), ever rising in what is told of one topic and partition.
            After a crash records are written again at new offsets; the fleet stage drops what is not beyond the highest
            origin it has folded of its topic and partition.
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
        """Names the sequence in which the origin rises."""
        return f"{self.origin_topic}/{self.origin_partition}"


class ToolStanding(StandingBase, kw_only=True, frozen=True, omit_defaults=True, tag="tool.standing"):
    """How a tool stands in one workspace, as a whole; the latest word replaces the one before.

    Attributes:
        user_id: one of those who have called it there.
        tool_name: the tool.
        workspace_id: the workspace.
        state: trust in the tool as a whole.
        calls: calls in the fleet's window that succeeded or failed by its rule.
        failures: of these, the failed ones.
    """

    user_id: str
    tool_name: str
    workspace_id: str
    state: TrustState
    calls: int = 0
    failures: int = 0

    @property
    def key(self) -> str:
        """Record key: user and tool."""
        return f"user:{self.user_id}{US}tool:{self.tool_name}"


class ModelBehaved(StandingBase, kw_only=True, frozen=True, omit_defaults=True, tag="model.behaved"):
    """What a model did in one session: numbers to add to its profile.

    Attributes:
        model: the model.
        turns: turns that have ended.
        stalled_turns: of these, the ones in which it was stuck.
        pattern: a pattern that was detected; once for each streak.
        nudges_sent: nudges issued.
        nudges_effective: nudges judged to have helped.
        nudges_judged: nudges judged at all; those that the user or the end of the session has overtaken are not.
        false_alarm: a pattern that somebody called wrong, itself or its nudge.
    """

    model: str
    turns: int = 0
    stalled_turns: int = 0
    pattern: Pattern | None = None
    nudges_sent: int = 0
    nudges_effective: int = 0
    nudges_judged: int = 0
    false_alarm: Pattern | None = None

    @property
    def key(self) -> str:
        """Record key: the model."""
        return f"model:{self.model}"


class StandingDue(StandingBase, kw_only=True, frozen=True, omit_defaults=True, tag="standing.due"):
    """Appended by the engine when something of a key has fallen due (docs/design/contracts.md#time-and-order).

    Attributes:
        key: the key.
    """

    key: str


Standing = ToolStanding | ModelBehaved | StandingDue
"""Everything that can stand on the `standings` topic."""

_decoder: msgspec.json.Decoder[Standing] = msgspec.json.Decoder(Standing)


def decode_standing(value: bytes) -> Standing:
    """Read one record of the `standings` topic.

    Raises:
        msgspec.DecodeError: when the record was not written by this version of trustfold.
    """
    return _decoder.decode(value)

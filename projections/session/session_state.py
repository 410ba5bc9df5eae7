"""State of one session: its records (records.py) and the detectors of each of its agents."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .detectors.registry import FIELDS, OF_SESSION, AgentDetectors
from .records import ActivePattern, AnyDetector, EventContext, NudgeMark, PendingNudge, SessionRecord
from .steps import AgentSteps

MAX_AGENTS = 16  # Agents of a session that are remembered beside the one that acted last


class AgentState(msgspec.Struct, array_like=True):
    """State of an agent that is not the current one; its fields are those of the same names in `SessionState`."""

    calls: int = 0  # calls of the session when this agent last acted
    steps: AgentSteps = msgspec.field(default_factory=AgentSteps)
    active: list[ActivePattern] = []
    pending_nudges: list[PendingNudge] = []
    nudged: list[NudgeMark] = []
    detectors: AgentDetectors = msgspec.field(default_factory=AgentDetectors)


_OF_AGENT = tuple(name for name in AgentState.__struct_fields__ if name != "calls")


class SessionState(SessionRecord):
    """Complete state of one session.

    Patterns are detected per agent (docs/detection.md): steps, patterns, nudges and detectors in the state are those
    of the agent that acted last. Calls in flight, turns, policies and budgets belong to the session.
    """

    detectors: AgentDetectors = msgspec.field(default_factory=AgentDetectors)
    agents: dict[str, AgentState] = {}  # the other agents, the one that acted longest ago first

    def detector(self, kind: type[AnyDetector]) -> AnyDetector:
        """Detector of a class that belongs to the current agent."""
        found: AnyDetector = getattr(self.detectors, FIELDS[kind])
        return found

    def act_as(self, agent_id: str) -> None:
        """Make this agent the current one; beyond MAX_AGENTS others, the longest idle is dropped."""
        if agent_id == self.agent:
            return
        left, found = AgentState(), self.agents.pop(agent_id, None) or AgentState(calls=self.calls)
        for name in OF_SESSION:  # stay where they are; those of an agent that waits are as new
            fresh = getattr(found.detectors, name)
            setattr(found.detectors, name, getattr(self.detectors, name))
            setattr(self.detectors, name, fresh)
        for name in _OF_AGENT:
            setattr(left, name, getattr(self, name))
            setattr(self, name, getattr(found, name))
        if left != AgentState():
            left.calls = self.calls
            self.agents[self.agent] = left
            if len(self.agents) > MAX_AGENTS:
                del self.agents[next(iter(self.agents))]
        self.agent = agent_id
        self._skip_calls(self.calls - found.calls)

    def each_agent(self, *, everyone: bool = False) -> Iterator[None]:
        """Act as every agent with an open pattern, or as everyone, in turn, the current one first and at the end."""
        current = self.agent
        yield
        for agent_id in [name for name, agent in self.agents.items() if everyone or agent.active]:
            self.act_as(agent_id)
            yield
        self.act_as(current)

    def _skip_calls(self, calls: int) -> None:
        """Exclude calls made by other agents from the cooldowns and from the time until a nudge is judged."""
        for active in self.active:
            if active.nudged_at >= 0:
                active.nudged_at += calls
        for pending in self.pending_nudges:
            pending.at_call += calls
        for mark in self.nudged:
            mark.nudged_at += calls


class SessionContext(EventContext, gc=False):
    """Context of the fold of one event, with the complete session state."""

    state: SessionState

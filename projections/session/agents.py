"""Streaks per agent of a session: each agent loops, pages and announces for itself (docs/detection.md).

Detectors read and write the streaks in the session's state, which are those of the agent that acted last. When another
agent acts, its streaks take their place (`act_as`); the others wait in `agents`. Calls in flight, turns, policies and
budgets belong to the session.
"""

from __future__ import annotations

from collections.abc import Iterator

from .state import MAX_AGENTS, AgentStreaks, SessionState

_NONE = AgentStreaks()
_FIELDS = tuple(name for name in AgentStreaks.__struct_fields__ if name != "calls")


def act_as(state: SessionState, agent_id: str) -> None:
    """Make the streaks in the state those of this agent. Of more than MAX_AGENTS the longest idle is forgotten."""
    if agent_id == state.agent:
        return
    left, found = AgentStreaks(), state.agents.pop(agent_id, None) or AgentStreaks(calls=state.calls)
    for name in _FIELDS:
        setattr(left, name, getattr(state, name))
        setattr(state, name, getattr(found, name))
    if left != _NONE:
        left.calls = state.calls
        state.agents[state.agent] = left
        if len(state.agents) > MAX_AGENTS:
            del state.agents[next(iter(state.agents))]
    state.agent = agent_id
    _skip_calls(state, state.calls - found.calls)


def each(state: SessionState) -> Iterator[None]:
    """Act as every agent with an open pattern in turn, the current one first and at the end."""
    current = state.agent
    yield
    for agent_id in [name for name, streaks in state.agents.items() if streaks.active]:
        act_as(state, agent_id)
        yield
    act_as(state, current)


def _skip_calls(state: SessionState, calls: int) -> None:
    """Leave out of cooldowns and of the time to judge a nudge the calls that other agents made meanwhile."""
    for active in state.active:
        if active.nudged_at >= 0:
            active.nudged_at += calls
    for pending in state.pending_nudges:
        pending.at_call += calls
    for mark in state.nudged:
        mark.nudged_at += calls

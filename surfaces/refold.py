"""Folding recorded inputs again: the embedded topology over what the history holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..history.inputs import Input
from ..projections.emit import Output
from ..projections.rule_source import TOPIC as SETTINGS
from ..projections.rule_source import RuleSource
from ..projections.topology import STAGE_OF_TOPIC
from ..schemas.rules import Rules
from ..schemas.settings import SettingsOverrides
from ..streams.embedded.topology import LocalTopology


class Refold:
    """One fold over recorded inputs under some rules.

    What fell due in the recorded run was appended to its log and is folded where it stood, so the same rules decide
    the same. Rules under which calls fall due at other times cannot go by that (`echoes=False`): it is left out, and
    the arrival of the records tells the time.
    """

    def __init__(self, rules: Rules, *, environment: SettingsOverrides | None = None, echoes: bool = True) -> None:
        """Start with clean states and scopes that override nothing."""
        self._topology = LocalTopology(RuleSource(rules, environment))
        self._echoes = echoes
        self._latest = -1

    def feed(self, given: Input) -> list[Output]:
        """Everything that one input causes, and what fell due before it."""
        left: list[Output] = []
        self._latest = max(self._latest, given.arrived_ms)
        if not self._echoes and self._latest > 0:
            due = self._topology.next_due()
            if due is not None and due <= self._latest:
                left += self._topology.tick(self._latest)
        known = given.topic in STAGE_OF_TOPIC or given.topic == SETTINGS
        if known and (self._echoes or not given.echo):
            left += self._topology.feed(given.topic, (given.value,), timestamp=given.arrived_ms, key=given.key)
        return left

    def finish(self) -> list[Output]:
        """What falls due by the last arrival, or by the last event where arrivals are not known."""
        return self._topology.tick(self._latest if self._latest > 0 else self._topology.stream_time)

    def run(self, given: Iterable[Input]) -> Iterator[Output]:
        """All inputs, to the end."""
        for one in given:
            yield from self.feed(one)
        yield from self.finish()


def fall_due_alike(one: Rules, other: Rules) -> bool:
    """Whether calls fall due at the same times under both rules."""
    return one.calls.deadline_ms == other.calls.deadline_ms

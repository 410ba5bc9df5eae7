"""What a run without any trouble would have left, to compare the troubled one with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from counting import STAGES, CountingProcessor, State
from lane_harness import LaneHarness


class Undisturbed:
    """What one worker without any trouble makes of the same log: the same processors, run here."""

    def __init__(self, harness: LaneHarness) -> None:
        self.states: dict[str, dict[str, State]] = {"session": {}, "tool": {}}
        self.ids: dict[str, set[str]] = {"nudges": set(), "breakers": set(), "dead-letters": set()}
        outcomes: dict[str, list[Any]] = {}
        tools = CountingProcessor(STAGES[1], 0, lambda _key: None)
        for partition, records in sorted(harness.read(harness.settings.topic("events")).items()):
            sessions = CountingProcessor(STAGES[0], partition, lambda _key: None)
            for output in self._keep(sessions.process("events", records)):
                outcomes.setdefault(output.key, []).append(output.value)
            self.states["session"] |= {key.decode(): state for key, state in sessions.live.items()}
        offset = 0
        for values in outcomes.values():
            for value in values:
                record = SimpleNamespace(key=None, value=value, offset=offset, timestamp=0, headers=())
                self._keep(tools.process("outcomes", [record]))
                offset += 1
        self.states["tool"] = {key.decode(): state for key, state in tools.live.items()}

    def _keep(self, outputs: Iterable[Any]) -> Iterator[Any]:
        others = []
        for output in outputs:
            if output.topic in self.ids:
                self.ids[output.topic].add(output.id)
            else:
                others.append(output)
        return iter(others)


def assert_as_undisturbed(harness: LaneHarness) -> None:
    """Every state is the one of an undisturbed run, and every output id is there; repeats are allowed."""
    truth = Undisturbed(harness)
    for stage, wanted in truth.states.items():
        have = {key: state.count for key, state in harness.states(stage).items()}
        want = {key: state.count for key, state in wanted.items()}
        wrong = {key: (want.get(key), have.get(key)) for key in want | have if want.get(key) != have.get(key)}
        assert not wrong, f"{stage}: {len(wrong)} of {len(want)} keys differ (wanted, found): {_some(wrong)}"
    for topic, ids in truth.ids.items():
        found = set(harness.ids(topic))
        assert not ids - found, f"{topic}: {len(ids - found)} ids are missing"
        assert not found - ids, f"{topic}: {len(found - ids)} ids that an undisturbed run does not make"


def _some(found: dict[Any, Any]) -> dict[Any, Any]:
    return dict(list(found.items())[:5])

"""Texts that make an engine repeat each loop of an expression."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from trustfold.rules.linear_patterns import PatternAutomaton


class Machine(PatternAutomaton):
    """Automaton of an expression that finds words for its transitions."""

    @property
    def begins(self) -> list[tuple[tuple[int, int], int]]:
        """Transitions with which a match begins."""
        return [
            (state, state[1] & edge.over)
            for edge in self._ways(self.start)
            for state in self.edges
            if state[0] == edge.target and state[1] & edge.over
        ]

    @property
    def may_be_empty(self) -> bool:
        """Whether a match may be empty."""
        self._ways(self.start, -2)
        return -2 in self._ends

    @cached_property
    def cycles(self) -> dict[tuple[int, int], int]:
        """States that lie on a cycle, with the number of their strongly connected component."""
        return self._components(set())

    def sample(self, mask: int) -> Any:
        """One character of a set, the last."""
        return self._characters[(mask & self.all).bit_length() - 1]

    def word(
        self,
        edges: list[tuple[tuple[int, int], int]],
        goal: Callable[[tuple[int, int]], bool],
        inside: set[tuple[int, int]] | None = None,
    ) -> Any:
        """A shortest word along transitions to a goal; None without one."""
        empty: Any = self.pattern.pattern[:0]
        waiting = deque((edge, empty) for edge in edges)
        seen: set[tuple[int, int]] = set()
        while waiting:
            (state, over), word = waiting.popleft()
            if state in seen or (inside is not None and state not in inside):
                continue
            seen.add(state)
            word += self.sample(over)
            if goal(state):
                return word
            waiting += [(edge, word) for edge in self.edges[state]]
        return None


_STATES_OF_A_LOOP = 2
"""States of each loop from which texts are made."""


def pumped(pattern: re.Pattern[Any], *, chars: int) -> Iterator[Any]:
    """Texts that make an engine repeat each loop of an expression, once and from its beginning, and fail at the end."""
    machine = Machine(pattern, searched=False)
    edges, begin = machine.edges, machine.begins
    empty: Any = pattern.pattern[:0]
    ends = [empty, machine.sample(1 << 0), machine.sample(machine.all)]
    made: Counter[int] = Counter()
    for state, number in machine.cycles.items():
        made[number] += 1
        if made[number] > _STATES_OF_A_LOOP:
            continue
        head = machine.word(begin, lambda one, state=state: one == state)
        inside = {one for one, other in machine.cycles.items() if other == number}
        around = machine.word(edges[state], lambda one, state=state: one == state, inside)
        if head is None or around is None:
            continue
        for body in ((head + around * 3), around):
            for end in ends:
                yield head + body * (chars // len(body)) + end

"""Texts that make an engine repeat each loop of an expression."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from trustfold.rules.linear_patterns import PatternAutomaton

_STATES_OF_A_LOOP = 2
"""States of each loop from which texts are made."""


class PumpedText(NamedTuple):
    """Text that comes to a loop of an expression, repeats it, and fails at the end."""

    head: Any
    body: Any
    end: Any

    def text(self, chars: int) -> Any:
        """So many characters of it."""
        return self.head + self.body * (chars // len(self.body)) + self.end


class Machine(PatternAutomaton):
    """Automaton of an expression that finds words for its transitions."""

    @cached_property
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

    def pumps(self) -> Iterator[PumpedText]:
        """Texts that make an engine repeat each loop, once and from its beginning, and fail at the end."""
        empty: Any = self.pattern.pattern[:0]
        members: dict[int, list[tuple[int, int]]] = {}
        for state, number in self.cycles.items():
            if state[0] >= 0:
                members.setdefault(number, []).append(state)
        for loop in members.values():
            for state in loop[:_STATES_OF_A_LOOP]:
                head = self.word(self.begins, lambda one, state=state: one == state)
                around = self.word(self.edges[state], lambda one, state=state: one == state, {*loop})
                if head is not None and around is not None:
                    for body in (head + around * 3, around):
                        for end in (empty, self.sample(1 << 0), self.sample(self.all)):
                            yield PumpedText(head, body, end)

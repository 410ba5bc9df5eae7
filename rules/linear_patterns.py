"""Proves that a regular expression is matched in linear time by a backtracking engine.

The work of such an engine is at most the number of paths through the expression's automaton over the text, from each
place at which an attempt may begin. The automaton, with a loop in front for the search, has a linear number of them
exactly if there are no states p and q and no word that leads from p to p, from p to q and from q to q (Weber and Seidl,
On the degree of ambiguity of finite automata, 1991). This is decided here.

States from which a match is certain are left out: what an attempt reads up to there belongs to its match, so that no
other attempt reads it again. Assertions about one character before or after a place are conditions of transitions. What
other assertions demand is ignored and their work is counted; so is what an atomic group forbids, and a reference to
a group is taken for all that the group can match. This can only make a linear expression look worse than it is. A
possessive repetition of one class is left only before a character of another class.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cached_property
from re import _compiler, _parser  # type: ignore[attr-defined]
from re import _constants as sre  # type: ignore[attr-defined]
from typing import Any, NamedTuple

_SAMPLES = [*range(256), 0x130, 0x131, 0x17F, 0x212A, 0x2028, 0x3000, 0x660, 0x4E00, 0xFF21, 0xFF41, 0xD800, 0x1F600]
_ONE = {sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY}
_REPEATS = {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT}


class AutomatonEdge(NamedTuple):
    """Transition that consumes a character: to which position, after which characters, over which characters."""

    target: int
    after: int
    over: int


class PatternAmbiguity(NamedTuple):
    """Why an expression is not linear: two places between which texts can be divided in a growing number of ways."""

    first: str
    second: str


class TooLarge(Exception):
    """A proof needs more steps than it may take."""


class PatternAutomaton:
    """Automaton of an expression, whose states are the places that consume a character.

    Sets of characters are bit masks over samples that the expression distinguishes; two further bits stand for the
    beginning and the end of the text.
    """

    def __init__(
        self, pattern: re.Pattern[Any], *, searched: bool = True, whole: bool = False, steps: float = math.inf
    ) -> None:
        self.pattern = pattern
        self._steps = steps
        self.searched = searched
        tree = _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
        self._state = tree.state
        samples = set(_SAMPLES if isinstance(pattern.pattern, str) else range(256))
        if isinstance(pattern.pattern, str):
            samples |= {c for c in map(ord, pattern.pattern) if c > 255}
        self._characters = [chr(c) if isinstance(pattern.pattern, str) else bytes([c]) for c in sorted(samples)]
        self.all = (1 << len(self._characters)) - 1
        self.begin, self.end = 1 << len(self._characters), 1 << (len(self._characters) + 1)
        self.any = self.all | self.begin | self.end
        self._masks: dict[tuple[Any, Any, int], int] = {}
        self._groups: dict[int | None, tuple[list[Any], int]] = {}
        self._note_groups(list(tree), tree.state.flags)
        self.consumes: list[int] = []  # by position: over which characters
        self._items: list[Any] = []  # by position, as parsed
        # nodes: (kind, payload, next nodes)
        self._nodes: list[tuple[Any, list[int]]] = []
        self._ends: dict[int | None, list[tuple[int, int]]] = {}  # where a match may end: after and before what
        end = self._accept = self._node(None, [])
        if whole:
            end = self._guards([(self.any, self.end)], end)
        self.start = self._sequence(list(tree), tree.state.flags, end)

    # --- construction, from the end backwards ---

    def _spend(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise TooLarge

    def _node(self, what: Any, following: list[int]) -> int:
        self._spend()
        self._nodes.append((what, following))
        return len(self._nodes) - 1

    def _mask(self, item: Any, flags: int) -> int:
        kind, value = item
        key = (kind, repr(value) if kind is sre.IN else value, flags)
        if key not in self._masks:
            self._state.flags = flags
            one = _compiler.compile(_parser.SubPattern(self._state, [item]), flags)
            self._masks[key] = sum(1 << n for n, c in enumerate(self._characters) if one.fullmatch(c))
        return self._masks[key]

    def _sequence(self, items: list[Any], flags: int, end: int) -> int:
        items = list(items)
        for place in range(len(items) - 1):
            one, (kind, value) = items[place : place + 2]
            if one[0] in _ONE and kind in {sre.ASSERT, sre.ASSERT_NOT} and value[0] < 0:
                inner = list(value[1])
                if len(inner) > 1 and inner[-1] == one:  # `b(?<!ab)` is `(?<!a)b`
                    items[place : place + 2] = [(kind, (value[0], inner[:-1])), one]
        for item in reversed(items):
            end = self._item(item, flags, end)
        return end

    def _note_groups(self, items: list[Any], flags: int) -> None:
        for kind, value in items:
            if kind is sre.SUBPATTERN:
                inner = list(value[3])
                self._groups[value[0]] = inner, (flags | value[1]) & ~value[2]
                self._note_groups(inner, (flags | value[1]) & ~value[2])
            elif kind in _REPEATS:
                self._note_groups(list(value[2]), flags)
            elif kind is sre.BRANCH:
                for one in value[1]:
                    self._note_groups(list(one), flags)

    def _item(self, item: Any, flags: int, end: int) -> int:
        kind, value = item
        if kind in _ONE:
            self.consumes.append(self._mask(item, flags))
            self._items.append(item)
            return self._node(("over", len(self.consumes) - 1), [end])
        if kind is sre.SUBPATTERN:
            _, more, less, inner = value
            return self._sequence(list(inner), (flags | more) & ~less, end)
        if kind is sre.GROUPREF:  # what the group can match, which is more than what it did match
            items, inner_flags = self._groups[value]
            return self._sequence(items, inner_flags, end)
        if kind is sre.ATOMIC_GROUP:
            return self._sequence(list(value), flags, end)
        if kind is sre.BRANCH:
            return self._node(None, [self._sequence(list(one), flags, end) for one in value[1]])
        if kind in _REPEATS:
            least, most, inner = value
            return self._repeat(kind, least, most, inner, flags, end)
        if kind is sre.AT:
            return self._guards(self._at(value, flags), end)
        if kind in {sre.ASSERT, sre.ASSERT_NOT}:
            direction, inner = value
            return self._assertion(kind, direction, inner, flags, end)
        raise NotImplementedError(f"{kind} in {self.pattern.pattern!r}")

    def _repeat(self, kind: Any, least: int, most: int, inner: Any, flags: int, end: int) -> int:
        items = list(inner)
        endless = most == sre.MAXREPEAT
        if endless:
            leave = end
            if kind is sre.POSSESSIVE_REPEAT and len(items) == 1 and items[0][0] in _ONE:
                leave = self._guards([(self.any, self.any & ~self._mask(items[0], flags))], end)
            loop = self._node(None, [])
            self._nodes[loop][1].extend([self._sequence(items, flags, loop), leave])
            end = loop
        else:
            outside = end
            for _ in range(most - least):
                end = self._node(None, [self._sequence(items, flags, end), outside])
        for _ in range(least):
            end = self._sequence(items, flags, end)
        return end

    def _guards(self, guards: list[tuple[int, int]], end: int) -> int:
        """Alternatives of conditions: characters before, characters after."""
        return self._node(None, [self._node(("if", *guard), [end]) for guard in guards])

    def _at(self, value: Any, flags: int) -> list[tuple[int, int]]:
        newline = self._mask((sre.LITERAL, 10), flags)
        if value is sre.AT_BEGINNING_STRING or (value is sre.AT_BEGINNING and not flags & re.MULTILINE):
            return [(self.begin, self.any)]
        if value is sre.AT_BEGINNING:
            return [(self.begin | newline, self.any)]
        if value is sre.AT_END_STRING:
            return [(self.any, self.end)]
        if value is sre.AT_END:
            return [(self.any, self.end | newline)]
        word = self._mask((sre.IN, [(sre.CATEGORY, sre.CATEGORY_WORD)]), flags)
        other = self.any & ~word
        return [(word, other), (other, word)] if value is sre.AT_BOUNDARY else [(word, word), (other, other)]

    def _assertion(self, kind: Any, direction: int, inner: Any, flags: int, end: int) -> int:
        options = _options(list(inner))
        ones = [self._one(option, flags) for option in options]
        if direction < 0:
            if all(one is not None for one in ones):
                mask = 0
                for one in ones:
                    mask |= one or 0
                return self._guards([(mask if kind is sre.ASSERT else self.any & ~mask, self.any)], end)
            return end  # of a fixed width: constant work
        if kind is sre.ASSERT_NOT:
            mask = 0
            for one in ones:
                mask |= one or 0
            go = self._guards([(self.any, self.any & ~mask)], end)
            if all(one is not None for one in ones):
                return go
        else:
            mask = 0
            for option in options:
                mask |= self._first(option, flags)
            go = self._guards([(self.any, mask)], end)
        work = self._sequence(list(inner), flags, self._node(None, []))
        return self._node(None, [work, go])

    def _one(self, option: list[Any], flags: int) -> int | None:
        """The characters of an option that is one character, or one end of the text."""
        if len(option) != 1:
            return None
        kind, value = option[0]
        if kind in _ONE:
            return self._mask(option[0], flags)
        if kind is sre.SUBPATTERN:
            inner = [self._one(one, (flags | value[1]) & ~value[2]) for one in _options(list(value[3]))]
            return None if None in inner else _union(one for one in inner if one is not None)
        if kind is sre.AT and value in {sre.AT_END_STRING, sre.AT_BEGINNING_STRING}:
            return self.end if value is sre.AT_END_STRING else self.begin
        return None

    def _first(self, option: list[Any], flags: int) -> int:
        """The characters with which an option can begin."""
        mask = 0
        for item in option:
            kind, value = item
            if kind in _ONE:
                return mask | self._mask(item, flags)
            if kind is sre.SUBPATTERN:
                inner = (flags | value[1]) & ~value[2]
                mask |= _union(self._first(one, inner) for one in _options(list(value[3])))
                if value[3].getwidth()[0] > 0:
                    return mask
            elif kind is sre.BRANCH:
                mask |= _union(self._first(list(one), flags) for one in value[1])
                if all(one.getwidth()[0] > 0 for one in value[1]):
                    return mask
            elif kind in _REPEATS:
                mask |= self._first(list(value[2]), flags)
                if value[0] > 0 and value[2].getwidth()[0] > 0:
                    return mask
            elif kind is sre.AT and value is sre.AT_END_STRING:
                return mask | self.end
            else:
                return self.any
        return self.any

    # --- transitions ---

    def _ways(self, node: int, position: int | None = None) -> list[AutomatonEdge]:
        """Every way from a node to the positions that consume the next character; notes where a match may end."""
        found: list[AutomatonEdge] = []
        waiting: list[tuple[int, int, int, tuple[int, ...]]] = [(node, self.any, self.any, ())]
        while waiting:
            node, after, over, seen = waiting.pop()
            self._spend()
            what, following = self._nodes[node]
            if what is not None and what[0] == "over":
                if over & self.consumes[what[1]] and after:
                    found.append(AutomatonEdge(what[1], after, over & self.consumes[what[1]]))
                continue
            if node == self._accept:
                self._ends.setdefault(position, []).append((after, over))
            if seen.count(node) > 1:  # a loop may begin again once, after an iteration that took something
                continue
            if what is not None:
                after &= what[1]
                over &= what[2]
                if not after or not over:
                    continue
            waiting += [(one, after, over, (*seen, node)) for one in reversed(following)]
        return found

    @cached_property
    def edges(self) -> dict[tuple[int, int], list[tuple[tuple[int, int], int]]]:
        """Transitions of states; a state is a position and the set of characters that it consumed last.

        The loop of the search is position -1.
        """
        nodes = {what[1]: following[0] for what, following in self._nodes if what is not None and what[0] == "over"}
        ways = {position: self._ways(node, position) for position, node in nodes.items()}
        begin = self._ways(self.start)
        if self.searched:
            ways[-1] = [*begin, AutomatonEdge(-1, self.any, self.all)]
        consumes = {-1: self.all, **dict(enumerate(self.consumes))}
        groups: dict[int, list[int]] = {}
        for position, edges in ways.items():
            parts = [consumes[position]]
            for after in {edge.after for edge in edges} | {after for after, _ in self._ends.get(position, ())}:
                parts = [part for one in parts for part in (one & after, one & ~after) if part]
            groups[position] = parts
        return {
            (position, group): [
                ((edge.target, part), part & edge.over)
                for edge in ways[position]
                if group & edge.after
                for part in groups[edge.target]
                if part & edge.over
            ]
            for position in ways
            for group in groups[position]
        }

    @cached_property
    def committed(self) -> set[tuple[int, int]]:
        """States from which a match is certain: whatever comes next, it ends here or goes on to such a state."""
        certain = {state for state in self.edges if state[0] >= 0}
        while True:
            left = {
                state
                for state in certain
                if (self.all | self.end)
                & ~_union(over for after, over in self._ends.get(state[0], ()) if after & state[1])
                & ~_union(over for target, over in self.edges[state] if target in certain)
            }
            if not left:
                return certain
            certain -= left

    @cached_property
    def components(self) -> dict[tuple[int, int], int]:
        """States that lie on a cycle, with the number of their strongly connected component.

        Cycles through a committed state are none: an attempt that comes there succeeds, and what it consumed up to
        there belongs to its match, so that neither another attempt nor another path of this one reads it again.
        """
        return self._components(self.committed)

    def _components(self, without: set[tuple[int, int]]) -> dict[tuple[int, int], int]:
        order: list[tuple[int, int]] = []
        seen: set[tuple[int, int]] = set()
        edges = {
            state: [(target, over) for target, over in ways if target not in without]
            for state, ways in self.edges.items()
            if state not in without
        }
        for root, first in edges.items():
            stack = [(root, iter(first))] if root not in seen else []
            seen.add(root)
            while stack:
                for target, _ in stack[-1][1]:
                    if target not in seen:
                        seen.add(target)
                        stack.append((target, iter(edges[target])))
                        break
                else:
                    order.append(stack.pop()[0])
        back: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for state, ways in edges.items():
            for target, _ in ways:
                back.setdefault(target, []).append(state)
        numbers: dict[tuple[int, int], int] = {}
        for number, root in enumerate(reversed(order)):
            waiting = [root]
            while waiting:
                state = waiting.pop()
                if state not in numbers:
                    numbers[state] = number
                    waiting += back.get(state, [])
        sizes: dict[int, int] = {}
        for number in numbers.values():
            sizes[number] = sizes.get(number, 0) + 1
        return {
            state: number
            for state, number in numbers.items()
            if sizes[number] > 1 or any(target == state for target, _ in edges[state])
        }

    # --- the decision ---

    def ambiguity(self) -> PatternAmbiguity | None:
        """The first place of growing ambiguity; None if the expression is linear."""
        for one in self._ambiguities():
            return one
        return None

    def _ambiguities(self) -> Iterator[PatternAmbiguity]:
        looped = self.components
        split: set[int] = set()
        for state, number in looped.items():
            inside = [(t, over) for t, over in self.edges[state] if looped.get(t) == number]
            for n, (target, over) in enumerate(inside):
                if any(target == other and over & more for other, more in inside[:n]):
                    yield PatternAmbiguity(self._name(state), self._name(target))
            if number not in split and self._splits(state, number):  # one state of a component speaks for all
                yield PatternAmbiguity(self._name(state), self._name(state))
            split.add(number)
        for p in looped:
            reach = self._reachable(p)
            for q in looped:
                # Within a component, such a word would give two paths from a state back to it.
                if looped[p] != looped[q] and q in reach and self._divides(p, q):
                    yield PatternAmbiguity(self._name(p), self._name(q))

    def _reachable(self, state: tuple[int, int]) -> set[tuple[int, int]]:
        seen, waiting = {state}, [state]
        while waiting:
            for target, _ in self.edges[waiting.pop()]:
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        return seen

    def _splits(self, state: tuple[int, int], number: int) -> bool:
        """Whether two different paths lead from a state back to it over one word: exponential."""
        looped = self.components
        start = (state, state, False)
        seen, waiting = {start}, [start]
        while waiting:
            self._spend()
            first, second, apart = waiting.pop()
            for one, over in self.edges[first]:
                if looped.get(one) != number:
                    continue
                for other, more in self.edges[second]:
                    if looped.get(other) != number or not over & more:
                        continue
                    now = (one, other, apart or one != other)
                    if now == (state, state, True):
                        return True
                    if now not in seen:
                        seen.add(now)
                        waiting.append(now)
        return False

    def _divides(self, p: tuple[int, int], q: tuple[int, int]) -> bool:
        """Whether a word leads from p to p, from p to q and from q to q: polynomial."""
        looped = self.components
        start, goal = (p, p, q), (p, q, q)
        seen, waiting = {start}, [start]
        while waiting:
            self._spend()
            first, middle, last = waiting.pop()
            for one, over in self.edges[first]:
                if looped.get(one) != looped[p]:
                    continue
                for other, more in self.edges[last]:
                    if looped.get(other) != looped[q] or not over & more:
                        continue
                    for between, both in self.edges[middle]:
                        if over & more & both:
                            now = (one, between, other)
                            if now == goal:
                                return True
                            if now not in seen:
                                seen.add(now)
                                waiting.append(now)
        return False

    def _name(self, state: tuple[int, int]) -> str:
        position, group = state
        if position < 0:
            return "the search"
        sample = self._characters[(group & self.all).bit_length() - 1]
        return f"{_text_of(self._items[position])} (as {sample!r})"


def _union(masks: Iterator[int]) -> int:
    mask = 0
    for one in masks:
        mask |= one
    return mask


def _options(items: list[Any]) -> list[list[Any]]:
    if len(items) == 1 and items[0][0] is sre.BRANCH:
        return [list(one) for one in items[0][1][1]]
    return [items]


def _text_of(item: Any) -> str:
    kind, value = item
    if kind is sre.LITERAL:
        return repr(chr(value))
    return "any character" if kind is sre.ANY else f"{kind} {value}".lower()[:60]


def ambiguity(
    pattern: re.Pattern[Any], *, searched: bool = True, whole: bool = False, steps: float = math.inf
) -> PatternAmbiguity | None:
    """Why matching an expression takes more than linear time; None if it is linear.

    Arguments:
        pattern: the expression.
        searched: whether matches may begin anywhere (`search`, `finditer`, `sub`, …), not only at one place (`match`).
        whole: whether a match must end with the text (`fullmatch`).
        steps: steps that the proof may take.

    Raises:
        TooLarge: it takes more.
        NotImplementedError: the expression has a part that is not known here.
    """
    return PatternAutomaton(pattern, searched=searched, whole=whole, steps=steps).ambiguity()

"""Proves that every match of an expression contains one of some strings."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache

from tests.support.pumped_texts import Machine


def match_without(
    pattern: re.Pattern[bytes],
    strings: Iterable[bytes],
    *,
    beginning: bool = False,
    view: Callable[[bytes], bytes] = bytes,
    letters: Iterable[int] = range(256),
) -> bytes | None:
    """A word that an expression may match and that contains none of the strings; None if there is none.

    Arguments:
        pattern: the expression. Assertions about more than one character are ignored, so that a word may be one that
            the expression does not match.
        strings: what each match must contain, once `view` has read it.
        beginning: whether each match must begin with one of the strings.
        view: function of one byte.
        letters: bytes of which the words consist.
    """
    machine = Machine(pattern, searched=False)
    wanted = frozenset(strings)
    heads = {string[:length] for string in wanted for length in range(len(string))}
    seen_as = {letter: view(bytes([letter])) for letter in letters}
    used = {byte for string in wanted for byte in string}

    @cache
    def step(read: bytes | None, letter: bytes) -> bytes | None:
        """What of the word read so far may begin a string; None if nothing may any more. Raises at a whole string."""
        if read is None:
            return None
        read += letter
        ends = (read,) if beginning else [read[at:] for at in range(len(read))]
        if not wanted.isdisjoint(ends):
            raise StopIteration
        return next((end for end in ends if end in heads), None if beginning else b"")

    @cache
    def steps(mask: int) -> list[tuple[bytes, bytes]]:
        """One letter, and what is seen of it, for each that the strings tell apart."""
        inside = [(bytes([letter]), seen) for letter, seen in seen_as.items() if mask >> letter & 1]
        others = [one for one in inside if one[1][0] not in used]
        return [one for one in inside if one[1][0] in used] + others[-1:]

    edges, seen = machine.edges, set()
    if machine.may_be_empty:
        return b""
    waiting = deque((edge, b"", b"") for edge in machine.begins)
    while waiting:
        (state, over), read, word = waiting.popleft()
        for letter, shown in steps(over) if read is not None else steps(over)[:1]:  # any: nothing is looked for
            try:
                now = step(read, shown)
            except StopIteration:
                continue
            if (state, now) in seen:
                continue
            seen.add((state, now))
            if any(after & state[1] for after, _ in machine._ends.get(state[0], ())):
                return word + letter
            waiting += [(edge, now, word + letter) for edge in edges[state]]
    return None

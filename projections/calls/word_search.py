"""Search for many words in one pass over a text, where most texts hold none of them or a few."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

from ahocorasick_rs import BytesAhoCorasick, Implementation


class WordSearch:
    """Search for some words, which may be parts of longer ones, in the letters in which they are given."""

    def __init__(self, words: Iterable[str]) -> None:
        """Take the words."""
        self.words = tuple(words)  # the words; none is empty

    @cached_property
    def _find(self) -> Callable[..., list[tuple[int, int, int]]]:
        """The search, prepared for the first text and not at the import."""
        every = [word.encode() for word in self.words]
        return BytesAhoCorasick(every, implementation=Implementation.DFA).find_matches_as_indexes

    def finds_any(self, text: str) -> bool:
        """Whether a text holds one of the words."""
        return bool(self._find(text.encode(errors="surrogatepass")))

    def places_of(self, text: str) -> list[int]:
        """Return the places among the words of those that a text holds, in the order of the words."""
        found = self._find(text.encode(errors="surrogatepass"), overlapping=True)
        return sorted({place for place, _, _ in found}) if found else []

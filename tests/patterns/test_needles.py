"""The quick look at a text finds whatever the expressions of secrets match: proven from their automata."""

from __future__ import annotations

import re

import pytest
from trustfold.security.redaction import RULES, RUN
from trustfold.security.secret_patterns.labels import LABELS, SecretLabel
from trustfold.security.secret_patterns.names import NAME, NAME_STEMS
from trustfold.security.secret_patterns.shapes import plain
from trustfold.security.secret_patterns.structures import STRUCTURES
from trustfold.security.secret_patterns.tokens import TOKENS

from tests.support.required_strings import match_without


@pytest.mark.parametrize(
    ("pattern", "strings", "beginning", "word"),
    [
        (rb"ab+c", (b"bc",), False, None),
        (rb"ab+c", (b"abb",), False, b"abc"),
        (rb"ab+c", (b"b",), True, b"abc"),
        (rb"x?ab", (b"ab", b"xa"), True, None),
        (rb"(?:foo|ba[rz])1", (b"foo", b"bar"), False, b"baz1"),
        (rb"(?i:ab)", (b"ab",), False, None),
        (rb"(?:ab)?", (b"ab",), False, b""),
    ],
)
def test_the_proof_tells_what_every_match_contains(
    pattern: bytes, strings: tuple[bytes, ...], word: bytes | None, *, beginning: bool
) -> None:
    """The word that it gives is matched and contains none of the strings."""
    assert match_without(re.compile(pattern), strings, beginning=beginning, view=bytes.lower) == word


def test_every_match_of_a_structure_holds_its_needles() -> None:
    """One of those by which texts are chosen, and one of each group beside them."""
    named = tuple(NAME_STEMS.encode().split(b"|"))
    for shape in STRUCTURES:
        for strings, beginning in ((shape.needles, shape.anchored), *((group, False) for group in shape.beside)):
            if strings != named:
                assert match_without(shape.pattern, strings, beginning=beginning, view=plain) is None, shape


def test_every_match_of_a_token_holds_its_needles() -> None:
    """In the letters of the text, at the beginning if it is looked for there."""
    for shape in TOKENS:
        assert match_without(shape.pattern, shape.needles, beginning=shape.anchored) is None, shape


def test_every_token_has_a_long_run() -> None:
    """In which alone it is looked for."""
    as_run = {bytes([code]): re.sub(rb"[\w.~+/-]", b"a", bytes([code])) for code in range(256)}
    for shape in TOKENS:
        assert match_without(shape.pattern, [b"a" * RUN], view=as_run.__getitem__) is None, shape


def test_every_match_of_a_label_begins_with_one_of_its_words() -> None:
    """In lower case, in every language."""
    for label in LABELS:
        assert match_without(label.pattern, label.words, beginning=True, view=plain) is None, label


def test_every_secret_name_holds_a_stem() -> None:
    """Names in ASCII; those of other letters are no names in the structures that ask for a stem."""
    ascii_names = re.compile(re.sub(rb"[^\x00-\x7f]", b"\x01", NAME.pattern.encode()), NAME.flags & ~re.UNICODE)
    letters = range(2, 128)
    assert match_without(ascii_names, NAME_STEMS.encode().split(b"|"), view=plain, letters=letters) is None


def test_rules_are_numbered_in_the_order_in_which_they_are_tried() -> None:
    """Structures, tokens, labels."""
    assert [one for one in RULES if isinstance(one, SecretLabel)] == list(LABELS)
    assert RULES[: len(STRUCTURES) + len(TOKENS)] == (*STRUCTURES, *TOKENS)

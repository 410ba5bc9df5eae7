"""Every regular expression of the product is matched in linear time, whatever the text."""

from __future__ import annotations

import gc
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import dropwhile
from operator import itemgetter
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined] # private, and the only account of an expression
from re import _parser
from typing import Any

import pytest
from trustfold.ingest.agents import copilot, kiro, opencode, pi
from trustfold.projections.session import announcing
from trustfold.projections.session.detectors import tool_avoidance
from trustfold.rules.linear_patterns import ambiguity

from tests.support.product_patterns import Found, compiled_in_functions, held_patterns, modules_without_import
from tests.support.pumped_texts import Machine

EXEMPT = {
    ("trustfold.projections.calls.masks", "_NUMBER"): (
        "its lookbehind of three characters lets at most two matches begin in a run of digits, the only repetition"
    ),
    ("trustfold.projections.calls.shell", "_TOKEN"): (
        "it matches at every place, so that attempts begin only where a match ended, and no alternative that fails"
        " reads further than the one that matches"
    ),
}
"""Expressions whose proof needs more than the automaton, with the proof; they are pumped, too."""

COMPUTED: dict[tuple[str, str], Callable[[], Iterable[str | re.Pattern[str]]]] = {
    ("trustfold.ingest.results", "by_words"): lambda: [row[0] for table in _ENDINGS for row in table],
    ("trustfold.projections.calls.launchers", "_outside"): lambda: [r"(?<![\w.-])/work(/|(?![\w.-]))"],
    ("trustfold.projections.session.announcing", "_phrases"): lambda: [
        pattern for _, pattern in announcing._phrases(("own phrase",))
    ],
    ("trustfold.projections.session.detectors.tool_avoidance", "_mention"): lambda: [
        tool_avoidance._mention("bash"),
        tool_avoidance._mention("mcp__browser__take_picture"),
    ],
    ("trustfold.streams.kafka.faults", "describe"): lambda: [r"^\[Error -?\d+\] KafkaError(: )?"],
    ("trustfold.projections.calls.danger", "_compiled"): list,  # the operator's own
    ("trustfold.projections.calls.destruction", "_by_program"): list,  # held by tables
    ("trustfold.rules.calls", "_fault_of"): list,  # the same, at their check
    ("trustfold.security.secret_patterns.shapes", "shape"): list,  # held by tables
    ("trustfold.security.secret_patterns.tokens", "_formats"): list,  # the same
    ("trustfold.security.secret_patterns.labels", "_label"): list,  # the same
    ("trustfold.history.catalogue", "_sql_of"): list,  # names of our own files
}
"""Functions that compute expressions, with examples of them."""

_ENDINGS = (copilot._UNKNOWN, kiro._ENDINGS, opencode._ENDINGS, opencode._TIMED_OUT, opencode._ABORTED, pi._ENDINGS)

PACKAGE = Path(__file__).parents[2]

LIMIT_SECONDS = 2.5
"""Processor time for 64 KB: far above what a linear expression takes, far below what a quadratic one would."""


def _name(found: Found) -> str:
    return f"{found.module.removeprefix('trustfold.')}:{found.name}"


@pytest.mark.parametrize(
    ("pattern", "searched", "linear"),
    [
        (r"a*b", True, False),
        (r"a*b", False, True),
        (r"(?<!a)a*b", True, True),
        (r"(?<!a)a*+b", True, True),
        (r"(a*)*b", False, False),
        (r"(a|a)*b", False, False),
        (r"(a|b)*c", False, True),
        (r"\s*=?\s+x", False, False),
        (r"\s*+=?\s+x", False, True),
        (r"x[^\n]*y", True, False),
        (r"x[^\nx]*y", True, True),
        (r'"(?:[^"\\\n]|\\.)*"', True, False),
        (r'"(?:[^"\\\n]|\\.)*"?', True, True),
        (r"\b\w+:", True, True),
        (r"\w+\b:", True, False),
        (r"[a-z]{0,200}:", True, True),
        (r"k(?=[a-z]*\d)[a-z0-9]{4,}", True, False),
        (r"k_(?=[a-z]*\d)[a-z0-9]{4,}", True, True),
        (r"glpat-[\w-]{16,}", True, True),
        (r"BEGIN[\s\S]*?(?:END|\Z)", True, True),
        (r"BEGIN[\s\S]*?END", True, False),
        (r"(['\"]).*?\1", True, False),
        (r".*a.*b", False, False),
        (r"0(?<![a-z0_.]0)0*+%", True, True),
    ],
)
def test_the_proof_tells_linear_expressions_from_others(pattern: str, searched: bool, linear: bool) -> None:
    """The examples of text books, and each construction that the product uses."""
    assert (ambiguity(re.compile(pattern), searched=searched) is None) is linear


@pytest.fixture(scope="module", autouse=True)
def _no_collections() -> Iterator[None]:
    """An automaton is a hundred thousand tuples and no cycle: looking for cycles took half of the time."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("package", sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))
def test_every_expression_is_linear(package: str) -> None:
    """Proven from its automaton, for the methods by which the product uses it; pumped texts take no time.

    An expression that is exempt must need it.
    """
    for found in held_patterns():
        if found.module.split(".")[1] == package:
            machine = Machine(found.pattern, searched=found.searched, whole=found.whole)
            exempt = (found.module, found.name) in EXEMPT
            assert (machine.ambiguity() is not None) is exempt, (_name(found), machine.ambiguity())
            _pump(found, machine)


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        (r"(?:[^'\\]++|\\.)*+'", True),
        (r"(?:x'[^']*+'?)++", True),
        (r"(?:ab?c)*+", False),
        (r"(?:[.,]0++)?+", False),
        (r"(?:\\++(?!'))*+", False),
        (r"(?:[0-9a-f]{2}){8,}+", False),
        (r"(?:ab?c)*", True),
    ],
)
def test_which_expressions_mean_the_same_to_every_python(pattern: str, same: bool) -> None:
    """Before 3.11.5 a possessive group that fails behind its beginning matches what its last attempt has read."""
    assert (_misread(re.compile(pattern)) == []) is same


def test_every_expression_means_the_same_to_every_python() -> None:
    """Decisions and redaction of two workers are equal, whatever their Pythons."""
    assert {(_name(found), *_misread(found.pattern)) for found in held_patterns() if _misread(found.pattern)} == set()


_ONE = {sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY}
_REPEATS = {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT}


def _misread(pattern: re.Pattern[Any]) -> list[str]:
    """Return the bodies of possessive groups that may fail behind their beginning."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags if isinstance(pattern.pattern, str) else pattern.flags & ~re.UNICODE
    found: list[str] = []

    def walk(items: Iterable[Any]) -> None:
        for kind, value in items:
            if kind is sre.POSSESSIVE_REPEAT and not _fails_at_its_beginning(list(value[2])):
                found.append(str(value[2]))
            walk(inner for part in _parts(kind, value) for inner in part)

    walk(_parser.parse(source, flags))
    return found


def _parts(kind: Any, value: Any) -> list[Any]:
    """Return the sequences in an element of an expression."""
    if kind in _REPEATS:
        return [value[2]]
    if kind is sre.BRANCH:
        return list(value[1])
    if kind is sre.ATOMIC_GROUP:
        return [value]
    return [value[-1]] if kind in {sre.SUBPATTERN, sre.ASSERT, sre.ASSERT_NOT} else []


def _fails_at_its_beginning(items: list[Any]) -> bool:
    """Whether a failed attempt has read nothing: single characters first, then what need not match."""
    if len(items) == 1 and items[0][0] is sre.BRANCH:
        return all(_fails_at_its_beginning(list(one)) for one in items[0][1][1])
    if len(items) == 1 and items[0][0] in _REPEATS:
        return len(items[0][1][2]) == 1 and items[0][1][2][0][0] in _ONE and items[0][1][0] <= 1
    rest = list(dropwhile(lambda item: item[0] in _ONE, items))
    return all(kind in _REPEATS and value[0] == 0 for kind, value in rest)


def test_many_expressions_are_found() -> None:
    """Among them those that are exempt."""
    assert len(held_patterns()) > 400
    assert {(found.module, found.name) for found in held_patterns()} >= set(EXEMPT)


def test_files_that_cannot_be_imported_hold_no_expression() -> None:
    """Adapters of frameworks that are not installed here match no text by expressions."""
    assert [file for file in modules_without_import() if "import re\n" in file.read_text(encoding="utf-8")] == []


def test_every_expression_that_a_function_compiles_is_linear() -> None:
    """Literal ones as they are written, computed ones by examples."""
    assert compiled_in_functions()
    for where, written in compiled_in_functions().items():
        examples = [one for one in written if one is not None]
        if None in written:
            examples += COMPUTED[where]()
        for one in examples:
            assert ambiguity(re.compile(one) if isinstance(one, str) else one) is None, where


def _pump(found: Found, machine: Machine) -> None:
    """Match texts of 2 KB that repeat a loop of the expression, and the slowest of these over 64 KB."""
    slowest, longest = 0.0, None
    for pump in machine.pumps():
        took = _seconds(found, pump.text(1 << 11))
        assert took < LIMIT_SECONDS / 32, (_name(found), pump)
        slowest, longest = max((slowest, longest), (took, pump), key=itemgetter(0))
    if longest is not None:
        assert _seconds(found, longest.text(1 << 16)) < LIMIT_SECONDS, (_name(found), longest)


def _seconds(found: Found, text: Any) -> float:
    started = time.process_time()
    if found.searched:
        deque(found.pattern.finditer(text), maxlen=0)
    elif found.whole:
        found.pattern.fullmatch(text)
    else:
        found.pattern.match(text)
    return time.process_time() - started

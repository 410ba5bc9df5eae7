"""What all areas share: rules from the case's config, its events played in order, its expectations looked up.

An area says what its words mean: `config_WORD` reads a setting, `op_WORD` does what an operation says and gives its
answer, `event_WORD` translates an event of the area's own, `see_WORD` tells what has come of it, `check_WORD` whether
that is as expected, and what it is. Its tables hold the short ones, a row for all words of one thing: KNOBS (fields of
rules or of a policy, read and told alike), CONFIG, OPS, EVENTS, VIEWS and CHECKS. The parameters of an operation or
event are the fields that it may have, or those named with `reads`; another field fails the case, and so does a word
that nothing here knows.
Endings of an expectation's name ask for less than equality (`_ENDINGS`); `has_` in front of it, whether there is one.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from typing import Any, Self, TypeVar

import msgspec
from msgspec import structs

from ..support.fixed_rules import Rules
from .calls import Calls
from .case import Case, UnknownWord, by_word, refuse_fields, times
from .world import World

_TABLES = {"config": "CONFIG", "op": "OPS", "event": "EVENTS", "see": "VIEWS", "check": "CHECKS"}
_Method = TypeVar("_Method", bound=Callable[..., Any])


def reads(*fields: str | Iterable[str]) -> Callable[[_Method], _Method]:
    """Declare the fields of an operation or event that a method reads from it as a whole, as words or as sets."""

    def declare(method: _Method) -> _Method:
        names = (one.split() if isinstance(one, str) else one for one in fields)
        method.reads = frozenset().union(*names)  # type: ignore[attr-defined]
        return method

    return declare


def nothing(fields: str = "") -> Callable[[Any, dict[str, Any]], None]:
    """An operation that changes nothing here: everything is decided without being asked."""
    return reads(fields)(lambda _self, _event: None)


def puts(attribute: str, read: Callable[[Any], Any] = lambda value: value) -> Callable[[Any, Any], None]:
    """Reader of a setting that is kept as it is, or as `read` makes it, in an attribute."""
    return lambda self, value: setattr(self, attribute, read(value))


def only(setting: str, allowed: Collection[Any], why: str) -> Callable[[Any, Any], None]:
    """Reader of a setting that can have no other values here; `why` says so to who reads the case's fault."""

    def read(_self: Any, value: Any) -> None:
        if value not in allowed:
            raise UnknownWord(f"{setting} {value!r}: {why}")

    return read


Checked = tuple[bool, Any]
"""Whether an observation is as expected, and what it is."""


class Area:
    """One case, on trial.

    Attributes:
        settings: those of the case that are to be read.
        rules: what they come to.
        policies: what they come to beside the rules, by name.
        given_fields: fields that they set, by the part of the rules or the policy that has them.
        answers: what each operation has answered, by its name, in order.
        expected: what is being looked at.
    """

    def __init_subclass__(cls) -> None:
        """Make a method of every word in the class's tables."""
        for part, fields in cls.__dict__.get("KNOBS", {}).items():
            for word, field in by_word({words: field for field, words in fields.items()}).items():
                _add_knob(cls, word, part, field)
        for kind, table in _TABLES.items():
            for word, method in by_word(cls.__dict__.get(table, {})).items():
                setattr(cls, f"{kind}_{word}", method)

    def __init__(self, case: Case) -> None:
        """Read the config. Raises UnknownWord: a setting has no meaning here; ValueError: the rules refuse it."""
        self.case = case
        self.settings = case.config
        self.rules = Rules()
        self.policies: dict[str, Any] = {}
        self.given_fields: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        self.answers: defaultdict[str, list[Any]] = defaultdict(list)
        self.expected = case.wanted
        self.prepare()
        self.read_settings()
        self.world = World(self.rules)
        self.calls = Calls(self.world, case.given)

    def prepare(self) -> None:
        """Before the config is read."""

    def read_settings(self) -> None:
        """Read the settings of the case into rules and policies."""
        for name, value in self.settings.items():
            self.word("config", name, "setting")(value)
        for part, fields in self.given_fields.items():
            self.set_fields(part, **fields)

    def set_fields(self, part: str, **fields: Any) -> None:
        """Set fields of one part of the rules, or of a policy. Raises ValueError: they do not take them."""
        held = self.policies.get(part) or getattr(self.rules, part)
        made = msgspec.convert(msgspec.to_builtins(held) | fields, type(held))
        if part in self.policies:
            self.policies[part] = made
        else:
            self.rules = structs.replace(self.rules, **{part: made})

    # --- play ---------------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Let everything happen. Raises Refused: trustfold has not taken what a guard has published."""
        for event in self.case.given:
            self.before(event)
            self.one(event)
            self.after(event)
        self.calls.say_streamed()
        self.conclude()
        if self.world.refused is not None:
            raise self.world.refused

    def before(self, event: dict[str, Any]) -> None:
        """Before each event."""

    def after(self, event: dict[str, Any]) -> None:
        """After each event."""

    def conclude(self) -> None:
        """After all events."""

    def one(self, event: dict[str, Any]) -> None:
        """Let one event happen, as often as it says."""
        kind, name = str(event.get("ev")), str(event.get("name"))
        if kind == "op":
            method, what = self.word("op", name, "operation"), f"operation {name!r}"
            self.calls.say_streamed()
        else:
            method, what = getattr(self, f"event_{kind}", None), f"event {kind!r}"
            if method is None:
                self.calls.take(event)
                return
        whole = getattr(method, "reads", None)
        fields = inspect.signature(method).parameters.keys() if whole is None else whole
        refuse_fields(event, {"ev", "name", "times", *fields}, what)
        for _ in range(1) if "times" in fields else times(event):
            if whole is None:
                answer = method(**{field: event[field] for field in event.keys() & fields})
            else:
                answer = method(event)
            self.answers[name].append(answer)

    op_evaluate = nothing()

    def answer(self, operation: str) -> Any:
        """The last answer to an operation. Raises UnknownWord: nobody asked."""
        if not self.answers[operation]:
            raise UnknownWord(f"the answer to {operation!r}, which nobody asked for")
        return self.answers[operation][-1]

    def trial(self, **changes: Any) -> Self:
        """The same case but for these fields, in a world of its own, where nothing has happened yet."""
        return type(self)(self.case._replace(**changes))

    # --- look ---------------------------------------------------------------------------------------------------------

    def faults(self, expected: dict[str, Any]) -> list[str]:
        """What is not as expected, in words."""
        self.expected = expected
        found = [self.fault(name, wanted) for name, wanted in expected.items()]
        return [fault for fault in found if fault]

    def fault(self, name: str, wanted: Any) -> str:
        """Difference between an observation and its expectation, in words; empty if there is none."""
        plain, holds, words = (name, same, "") if hasattr(self, f"see_{name}") else _ending_of(name)
        if hasattr(self, f"check_{name}"):
            plain, words = name, ""
            fits, actual = getattr(self, f"check_{name}")(wanted)
        else:
            actual = self.word("see", plain, "expectation", name)()
            fits = holds(actual, wanted)
        return "" if fits else f"{plain} is {actual!r}, not {words}{wanted!r}"

    def word(self, kind: str, name: str, what: str, written: str = "") -> Callable[..., Any]:
        """Method that interprets a word of a case, `written` with an ending. Raises UnknownWord: there is none."""
        found = getattr(self, f"{kind}_{name}", None)
        if found is None:
            raise UnknownWord(f"{what} {written or name!r} in {self.case.area}")
        return found  # type: ignore[no-any-return]


def _add_knob(cls: type[Area], word: str, part: str, field: str) -> None:
    """A word for a field, as a setting and, unless it means something else there, as an observation."""
    factor = 1000 if field.endswith("_ms") and not word.endswith("_ms") else None

    def put(self: Area, value: Any) -> None:
        self.given_fields[part][field] = value if factor is None or value is None else value * factor

    def see(self: Area) -> Any:
        value = getattr(self.policies.get(part) or getattr(self.rules, part), field)
        return value if factor is None or value is None else value / factor

    setattr(cls, f"config_{word}", put)
    if not hasattr(cls, f"see_{word}"):
        setattr(cls, f"see_{word}", see)


# --- comparison -------------------------------------------------------------------------------------------------------


def same(actual: Any, wanted: Any) -> bool:
    """Whether an observation is what was wanted: figures to the places given, tables as far as they are written."""
    if isinstance(wanted, dict) and isinstance(actual, dict):
        return all(_same_field(name, actual, value) for name, value in wanted.items())
    if isinstance(wanted, list) and isinstance(actual, (list, tuple)):
        return len(wanted) == len(actual) and all(map(same, actual, wanted))
    if isinstance(wanted, bool) or isinstance(actual, bool) or wanted is None or actual is None:
        return wanted is actual
    if isinstance(wanted, (int, float)) and isinstance(actual, (int, float)):
        places = -Decimal(str(wanted)).as_tuple().exponent  # type: ignore[operator]
        return abs(wanted - actual) <= (0.5 * 10.0**-places + 1e-12 if places >= 3 else 1e-6)
    return bool(wanted == actual)


def _same_field(name: str, table: dict[str, Any], wanted: Any) -> bool:
    plain, holds, _ = (name, same, "") if name in table else _ending_of(name)
    if plain not in table:
        raise UnknownWord(f"{name!r} in an expectation; there are {', '.join(table) or 'no fields'}")
    return holds(table[plain], wanted)


def _contains(actual: Any, wanted: Any) -> bool:
    parts = wanted if isinstance(wanted, list) else [wanted]
    return all(str(part).lower() in str(actual or "").lower() for part in parts)


def _is_there(actual: Any, wanted: Any) -> bool:
    return bool(actual) is bool(wanted)


def _size(actual: Any) -> float:
    return float(len(actual) if isinstance(actual, (list, tuple, dict, str)) else actual or 0)


def _at_most(actual: Any, wanted: Any) -> bool:
    return _size(actual) <= wanted


def _at_least(actual: Any, wanted: Any) -> bool:
    return actual is not None and _size(actual) >= wanted


_ENDINGS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("_contains", _contains, "with "),
    ("_set", _is_there, "set: "),
    ("_at_most", _at_most, "at most "),
    ("_max", _at_most, "at most "),
    ("_at_least", _at_least, "at least "),
    ("_min", _at_least, "at least "),
    ("_not", lambda actual, wanted: not same(actual, wanted), "other than "),
)


def _ending_of(name: str) -> tuple[str, Callable[[Any, Any], bool], str]:
    """Name of the observation that an expectation is about, how they are compared, and that in words."""
    if name.startswith("has_"):
        return name.removeprefix("has_"), _is_there, "there: "
    return next(((name.removesuffix(end), *how) for end, *how in _ENDINGS if name.endswith(end)), (name, same, ""))  # type: ignore[return-value]

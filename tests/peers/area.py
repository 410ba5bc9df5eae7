"""What all areas share: rules from the case's config, its events played in order, its expectations looked up.

An area says what its words mean: `config_WORD` reads a setting, `op_WORD` does what an operation says, `event_WORD`
translates an event of the area's own, `see_WORD` tells what has come of it, `check_WORD` says what differs from an
expectation. Its tables hold the short ones, a row for all words of one thing: KNOBS (fields of rules or of a policy,
read and told alike), CONFIG, OPS, EVENTS, VIEWS and CHECKS. The
parameters of an operation or event are the fields that it may have, or those named with `reads`; another field fails
the case, and so does a word that nothing here knows. Endings of an expectation's name ask for less than equality:
`_contains`, `_set`, `_at_most`, `_at_least`, `_min`, `_max`; `has_` in front of it, whether there is one.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from ..support.fixed_rules import Rules
from .calls import Calls
from .case import Case, UnknownWord, refuse_fields, times
from .world import World

_TABLES = {"config": "CONFIG", "op": "OPS", "event": "EVENTS", "see": "VIEWS", "check": "CHECKS"}
_Method = TypeVar("_Method", bound=Callable[..., Any])
_NO_FIELDS = frozenset({"ev", "name"})


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


class Area:
    """One case, on trial.

    Attributes:
        rules: what `config` comes to.
        given_fields: fields that the config sets, by the part of the rules or the policy that has them.
        expected: what is being looked at.
    """

    def __init_subclass__(cls) -> None:
        """Make a method of every word in the class's tables."""
        for part, fields in cls.__dict__.get("KNOBS", {}).items():
            for field, words in fields.items():
                for word in words.split():
                    _add_knob(cls, word, part, field)
        for kind, table in _TABLES.items():
            for words, method in cls.__dict__.get(table, {}).items():
                for word in words.split():
                    setattr(cls, f"{kind}_{word}", method)

    def __init__(self, case: Case) -> None:
        """Read the config.

        Raises:
            UnknownWord: a setting has no meaning here.
            ValueError: the rules refuse it.
        """
        self.case = case
        self.rules = Rules()
        self.given_fields: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        self.expected = case.wanted
        self.prepare()
        try:
            for name, value in self.settings().items():
                self.word("config", name, "setting")(value)
            self.conclude_config()
        except ValueError as error:
            self.refuse_config(error)
        self.world = World(self.rules)
        self.calls = Calls(self.world, case.given)

    def prepare(self) -> None:
        """Before the config is read."""

    def settings(self) -> dict[str, Any]:
        """Settings of the case that are to be read."""
        return self.case.config

    def conclude_config(self) -> None:
        """After the config has been read: set what it sets."""
        for part, fields in self.given_fields.items():
            known = self.part(part)
            self.put_part(part, msgspec.convert(msgspec.to_builtins(known) | fields, type(known)))

    def refuse_config(self, error: ValueError) -> None:
        """The rules do not take the config."""
        raise error

    def part(self, name: str) -> Any:
        """A part of the rules, or a policy of the area."""
        return getattr(self.rules, name) if hasattr(self.rules, name) else getattr(self, name)

    def put_part(self, name: str, value: Any) -> None:
        """Replace a part of the rules, or a policy of the area."""
        if hasattr(self.rules, name):
            self.rules = structs.replace(self.rules, **{name: value})
        else:
            setattr(self, name, value)

    def change(self, part: str, **fields: Any) -> None:
        """Set fields of one part of the rules."""
        self.put_part(part, structs.replace(self.part(part), **fields))

    # --- play ---------------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Let everything happen."""
        for event in self.case.given:
            self.before(event)
            self.one(event)
            self.after(event)
        self.calls.say_streamed()

    def before(self, event: dict[str, Any]) -> None:
        """Before each event."""

    def after(self, event: dict[str, Any]) -> None:
        """After each event."""

    def one(self, event: dict[str, Any]) -> None:
        """Let one event happen."""
        kind = str(event.get("ev"))
        if kind == "op":
            name = str(event.get("name"))
            method = self.word("op", name, "operation")
            self.calls.say_streamed()
            _perform(method, event, f"operation {name!r}")
        elif (own := getattr(self, f"event_{kind}", None)) is not None:
            _perform(own, event, f"event {kind!r}")
        else:
            self.calls.take(event)

    op_evaluate = nothing()

    # --- look ---------------------------------------------------------------------------------------------------------

    def faults(self, expected: dict[str, Any]) -> list[str]:
        """What is not as expected, in words."""
        self.expected = expected
        found = [self.fault(name, wanted) for name, wanted in expected.items()]
        return [fault for fault in found if fault]

    def fault(self, name: str, wanted: Any) -> str:
        """Difference between an observation and its expectation, in words; empty if there is none."""
        own = getattr(self, f"check_{name}", None)
        if own is not None:
            return str(own(wanted) or "")
        see = getattr(self, f"see_{name}", None)
        if see is not None:
            actual = see()
            return "" if same(wanted, actual) else f"{name} is {actual!r}, not {wanted!r}"
        plain, holds, words = ending_of(name)
        if plain != name and (see := getattr(self, f"see_{plain}", None)) is not None:
            actual = see()
            return "" if holds(actual, wanted) else f"{plain} is {actual!r}; wanted: {words} {wanted!r}"
        raise UnknownWord(f"expectation {name!r} in {self.case.area}")

    def word(self, kind: str, name: str, what: str) -> Callable[..., Any]:
        """Method that interprets a word of a case.

        Raises:
            UnknownWord: this area has none for it.
        """
        found = getattr(self, f"{kind}_{name}", None)
        if found is None:
            raise UnknownWord(f"{what} {name!r} in {self.case.area}")
        return found  # type: ignore[no-any-return]


def _add_knob(cls: type[Area], word: str, part: str, field: str) -> None:
    """A word for a field, as a setting and, unless it means something else there, as an observation."""
    factor = 1000 if field.endswith("_ms") and not word.endswith("_ms") else 1

    def put(self: Area, value: Any) -> None:
        self.given_fields[part][field] = value if factor == 1 or value is None else value * factor

    def see(self: Area) -> Any:
        value = getattr(self.part(part), field)
        return value if factor == 1 or value is None else value / factor

    setattr(cls, f"config_{word}", put)
    if not hasattr(cls, f"see_{word}"):
        setattr(cls, f"see_{word}", see)


def _perform(method: Callable[..., Any], event: dict[str, Any], what: str) -> None:
    """Let an operation or event happen, as often as it says."""
    whole = getattr(method, "reads", None)
    known = inspect.signature(method).parameters.keys() if whole is None else whole
    refuse_fields(event, known | {"times"} | _NO_FIELDS, what)
    for _ in range(1) if "times" in known else times(event):
        if whole is None:
            method(**{name: event[name] for name in event.keys() & known})
        else:
            method(event)


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
    ("_contains", _contains, "contains"),
    ("_set", _is_there, "is set:"),
    ("_at_most", _at_most, "at most"),
    ("_max", _at_most, "at most"),
    ("_at_least", _at_least, "at least"),
    ("_min", _at_least, "at least"),
    ("_not", lambda actual, wanted: not same(wanted, actual), "anything but"),
)


def ending_of(name: str) -> tuple[str, Callable[[Any, Any], bool], str]:
    """Name of the observation that an expectation is about, how they are compared, and that in words."""
    for ending, holds, words in _ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending), holds, words
    if name.startswith("has_"):
        return name.removeprefix("has_"), _is_there, "is there:"
    return name, same, "equals"


def same(wanted: Any, actual: Any) -> bool:
    """Whether an observation is what was wanted: figures to the places given, tables as far as they are written."""
    if isinstance(wanted, dict) and isinstance(actual, dict):
        return all(_same_field(name, value, actual) for name, value in wanted.items())
    if isinstance(wanted, list) and isinstance(actual, (list, tuple)):
        return len(wanted) == len(actual) and all(map(same, wanted, actual))
    if isinstance(wanted, bool) or isinstance(actual, bool) or wanted is None or actual is None:
        return wanted is actual
    if isinstance(wanted, (int, float)) and isinstance(actual, (int, float)):
        places = -Decimal(str(wanted)).as_tuple().exponent  # type: ignore[operator]
        return abs(wanted - actual) <= (0.5 * 10.0**-places + 1e-12 if places >= 3 else 1e-6)
    return bool(wanted == actual)


def _same_field(name: str, wanted: Any, table: dict[str, Any]) -> bool:
    if name in table:
        return same(wanted, table[name])
    plain, holds, _ = ending_of(name)
    if plain != name and plain in table:
        return holds(table[plain], wanted)
    raise UnknownWord(f"{name!r} in an expectation; there are {', '.join(table) or 'no fields'}")

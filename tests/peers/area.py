"""What all areas share: rules from the case's config, its events played in order, its expectations looked up.

An area says what its words mean by methods: `config_WORD` reads a setting, `op_WORD` does what an operation says,
`event_WORD` translates an event of the area's own, `see_WORD` tells what has come of it. Its tables CONFIG,
OPS and VIEWS hold the short ones; a row names all words for one thing. A word without a method fails the case, and so
does a field that an operation or event does not name with `reads`. Endings of an expectation's name ask for less than
equality: `_contains`, `_set`, `_at_most`, `_at_least`, `_min`, `_max`; `has_` in front of it, whether there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, TypeVar

from msgspec import structs
from trustfold.rules.rules import Rules

from . import calls
from .calls import Calls
from .case import Case, UnknownWord
from .world import World

_Method = TypeVar("_Method", bound=Callable[..., Any])


def reads(*fields: str | Iterable[str]) -> Callable[[_Method], _Method]:
    """Declare the fields of an operation or event that a method reads, as words or as sets; others fail the case."""

    def declare(method: _Method) -> _Method:
        names = (one.split() if isinstance(one, str) else one for one in fields)
        method.reads = frozenset().union(*names)  # type: ignore[attr-defined]
        return method

    return declare


def nothing(*fields: str) -> Callable[[Any, dict[str, Any]], None]:
    """An operation that changes nothing here: everything is decided without being asked."""
    return reads(*fields)(lambda _self, _event: None)


def puts(attribute: str, read: Callable[[Any], Any] = lambda value: value) -> Callable[[Any, Any], None]:
    """Reader of a setting that is kept as it is, or as `read` makes it, in an attribute."""
    return lambda self, value: setattr(self, attribute, read(value))


def changes(part: str, field: str, read: Callable[[Any], Any] = lambda value: value) -> Callable[[Area, Any], None]:
    """Reader of a setting that is a field of one part of the rules, as it is or as `read` makes it."""
    return lambda self, value: self.change(part, **{field: read(value)})


def refuse_fields(event: dict[str, Any], known: Iterable[str], what: str) -> None:
    """Refuse an event or a part of one that says more than is read.

    Raises UnknownWord: naming the first field that is not known.
    """
    unknown = sorted(event.keys() - set(known))
    if unknown:
        raise UnknownWord(f"field {unknown[0]!r} of {what}")


class Area:
    """One case, on trial.

    Attributes:
        rules: what `config` comes to; `config_…` methods replace it.
        expected: what is being looked at.
    """

    def __init_subclass__(cls) -> None:
        """Make a method of every word in the class's tables."""
        for kind, table in (("config", "CONFIG"), ("op", "OPS"), ("see", "VIEWS")):
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
        self.expected = case.wanted
        self.prepare()
        for name, value in case.config.items():
            self._word("config", name, "setting")(value)
        self.conclude_config()
        self.world = World(self.rules)
        self.calls = Calls(self.world, case.given)

    def prepare(self) -> None:
        """Before the config is read."""

    def conclude_config(self) -> None:
        """After the config has been read."""

    def change(self, part: str, **fields: Any) -> None:
        """Set fields of one part of the rules."""
        made = structs.replace(getattr(self.rules, part), **fields)
        self.rules = structs.replace(self.rules, **{part: made})

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
            method = self._word("op", name, "operation")
            refuse_fields(event, getattr(method, "reads", frozenset()) | {"ev", "name"}, f"operation {name!r}")
            self.calls.say_streamed()
            method(event)
        elif (own := getattr(self, f"event_{kind}", None)) is not None:
            refuse_fields(event, getattr(own, "reads", frozenset()) | {"ev"}, f"event {kind!r}")
            own(event)
        elif kind in calls.EVENTS:
            self.calls.take(event)
        else:
            raise UnknownWord(f"event {kind!r} in {self.case.area}")

    op_evaluate = nothing()

    # --- look ---------------------------------------------------------------------------------------------------------

    def faults(self, expected: dict[str, Any]) -> list[str]:
        """What is not as expected, in words."""
        self.expected = expected
        found = [self._fault(name, wanted) for name, wanted in expected.items()]
        return [fault for fault in found if fault]

    def _fault(self, name: str, wanted: Any) -> str:
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

    def _word(self, kind: str, name: str, what: str) -> Callable[[Any], Any]:
        found = getattr(self, f"{kind}_{name}", None)
        if found is None:
            raise UnknownWord(f"{what} {name!r} in {self.case.area}")
        return found  # type: ignore[no-any-return]


def _contains(actual: Any, wanted: Any) -> bool:
    parts = wanted if isinstance(wanted, list) else [wanted]
    return all(str(part).lower() in str(actual or "").lower() for part in parts)


def _size(actual: Any) -> float:
    return float(len(actual) if isinstance(actual, (list, tuple, dict, str)) else actual or 0)


_ENDINGS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("_contains", _contains, "contains"),
    ("_set", lambda actual, wanted: bool(actual) is bool(wanted), "is set:"),
    ("_at_most", lambda actual, wanted: _size(actual) <= wanted, "at most"),
    ("_max", lambda actual, wanted: _size(actual) <= wanted, "at most"),
    ("_at_least", lambda actual, wanted: actual is not None and _size(actual) >= wanted, "at least"),
    ("_min", lambda actual, wanted: actual is not None and _size(actual) >= wanted, "at least"),
    ("_not", lambda actual, wanted: not same(wanted, actual), "anything but"),
)


def ending_of(name: str) -> tuple[str, Callable[[Any, Any], bool], str]:
    """Name of the observation that an expectation is about, how they are compared, and that in words."""
    for ending, holds, words in _ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending), holds, words
    if name.startswith("has_"):
        return name.removeprefix("has_"), lambda actual, wanted: bool(actual) is bool(wanted), "is there:"
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

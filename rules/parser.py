"""Rules from text: TOML or JSON, with faults that name the line, the field and what would be right.

Pure: text in, rules out. Whoever reads the file names it.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..errors import ConfigError
from . import rules as rules_module
from .allowed_values import OFF, allowed_at, given_at, without_off
from .older_shapes import TRUST_FIELDS, Misfit, Step, moved
from .overlay import Patch, overlaid, plain
from .rules import Rules
from .text_positions import line_of

_SOMEWHERE = re.compile(r" - at `(?:key` in `)?\$?(.*)`$")
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]+)`")
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|([^.\[]+)")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_EVERY_KEY = "..."
"""What the library writes for the key of a table with free keys."""

POLICY_FIELDS = frozenset({"policies", "prerequisite_policies", "pattern_detection", "version"})
"""What a policies file may hold."""

SHOWN_FIELDS = frozenset({"files", "environment", "rules"})
"""Fields of the JSON document that `config show --json` prints; as a rules file it stands for its `rules`."""


class Document:
    """A text of rules, parsed.

    Attributes:
        name: of the file, for messages.
        patch: what it sets, in the shape of `Rules`; what older files spell otherwise is moved to where it lives now.
    """

    def __init__(self, name: str, text: str, *, suffix: str = "") -> None:
        """Parse a text: TOML or JSON by the suffix of its file, or by its first character.

        Raises:
            ConfigError: it is neither, or holds no table, or sets something twice.
        """
        self.name = name
        self._text = text
        self._as_json = suffix == ".json" or (suffix != ".toml" and text.lstrip().startswith("{"))
        try:
            data = json.loads(text) if self._as_json else tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{name}: not {'JSON' if self._as_json else 'TOML'}: {error}") from error
        if not isinstance(data, dict):
            raise ConfigError(f"{name}: must hold one object with rules, not {type(data).__name__}")
        self._above: tuple[Step, ...] = ()
        if data.keys() == SHOWN_FIELDS and isinstance(data["rules"], dict):
            self._above, data = ("rules",), data["rules"]
        self.written: dict[str, Any] = data
        try:
            self.patch = moved(data)
        except Misfit as misfit:
            raise self.fault(misfit) from misfit

    def over(self, base: Rules) -> Rules:
        """The rules that this document makes of others.

        Raises:
            ConfigError: naming file, line, field and fix.
        """
        try:
            return fitted(base, self.patch)
        except Misfit as misfit:
            raise self.fault(misfit) from misfit

    def only_policies(self) -> Document:
        """This document, checked to be one of policies.

        Raises:
            ConfigError: it holds something else.
        """
        for name in self.written:
            if name not in POLICY_FIELDS:
                what = "a policies file holds policies and nothing else; other rules belong into the rules file"
                raise self.fault(Misfit((name,), what))
        return self

    def fault(self, misfit: Misfit) -> ConfigError:
        """What is wrong, with the file, the line and the path as they are written."""
        path = misfit.path
        if path[:1] == ("trust",) and "trust" not in self.written:
            path = path[1:]
        path = (*self._above, *path)
        line = line_of(self._text, path, as_json=self._as_json) if path else None
        place = f"{self.name}:{line}" if line else self.name
        return ConfigError(f"{place}: {Misfit(path, misfit.what)}")


def as_toml(rules: Rules, *, everything: bool = False) -> str:
    """Render rules as TOML that loads to the same rules: those that are not as shipped, or all of them."""
    shipped = dict(_lines(plain(Rules())))
    return "".join(
        f"{name} = {value}\n" for name, value in _lines(plain(rules)) if everything or shipped.get(name) != value
    )


def _lines(table: Patch, above: str = "") -> Iterator[tuple[str, str]]:
    """Dotted key and value of everything in a table, as TOML writes them."""
    for step, value in table.items():
        name = f"{above}{step if _BARE_KEY.fullmatch(step) else _toml_text(step)}"
        if isinstance(value, Mapping) and value:
            yield from _lines(value, f"{name}.")
        else:
            yield name, _toml_value(value)


def _toml_value(value: Any) -> str:
    match value:
        case None:
            return f'"{OFF}"'
        case str():
            return _toml_text(value)
        case list():
            return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(value)


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def fitted(base: Rules, patch: Patch) -> Rules:
    """`base` with everything that a patch names.

    Raises:
        Misfit: with the path of the fault, and what would be right.
    """
    patch = without_off(patch)
    try:
        return overlaid(base, patch)
    except msgspec.ValidationError as error:
        raise _explained(str(error), base, patch) from error


def _explained(text: str, base: Rules, patch: Patch) -> Misfit:
    """The library's words as path, fault and fix."""
    found = _SOMEWHERE.search(text)
    what, where = (text[: found.start()], found.group(1)) if found else (text, "")
    path = _with_keys(tuple(_steps(where)), base, patch)
    unknown = _UNKNOWN_FIELD.search(what)
    if unknown is None:
        return Misfit(path, _in_words(what, path, patch, key="`key` in `" in text))
    name = unknown.group(1)
    near = difflib.get_close_matches(name, _known_names(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "remove it, or look the name up in the rules reference"
    return Misfit((*path, name), f"there is no such rule; {hint}")


def _in_words(what: str, path: tuple[Step, ...], patch: Patch, *, key: bool) -> str:
    """The library's words without its types; what our own checks say stays as it is."""
    if what.startswith("Object missing required field"):
        return f"{what.split('`')[1]} is missing"
    if what.startswith(("Expected", "Invalid enum")) and (allowed := allowed_at(path, key=key)) is not None:
        given = f"{what.rpartition(' ')[2]} is no name here; it" if key else ""
        return f"{given} must be {allowed}".lstrip() + ("" if key else f", not {given_at(patch, path)}")
    return f"{what[0].lower()}{what[1:]}"


def _steps(where: str) -> list[Step]:
    return [
        int(number) if number.isdecimal() else number or name for number, name in _STEP.findall(where) if number or name
    ]


def _with_keys(path: tuple[Step, ...], base: Rules, patch: Patch) -> tuple[Step, ...]:
    """Put the key of the faulty entry where the library leaves dots, by trying the entries one by one."""
    while _EVERY_KEY in path:
        place = path.index(_EVERY_KEY)
        table: Any = patch
        for step in path[:place]:
            table = table.get(step, {}) if isinstance(table, Mapping) else {}
        keys = list(table) if isinstance(table, Mapping) else []
        key = next((key for key in keys if not _fits(base, path[:place], key, table[key])), "?")
        path = (*path[:place], key, *path[place + 1 :])
    return path


def _fits(base: Rules, above: tuple[Step, ...], key: str, value: Any) -> bool:
    document: Any = {key: value}
    for step in reversed(above):
        document = {step: document}
    try:
        overlaid(base, document)
    except msgspec.ValidationError:
        return False
    return True


def _known_names() -> list[str]:
    base = rules_module.RulesBase
    kinds = [kind for kind in vars(rules_module).values() if isinstance(kind, type) and issubclass(kind, base)]
    return sorted({field for kind in kinds for field in kind.__struct_fields__} | TRUST_FIELDS)

"""Parses rules from TOML or JSON; faults name the line, the field and the valid values.

Pure: takes text and returns rules; the caller reads the file.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from ..errors import ConfigError
from . import rules as rules_module
from .allowed_values import OFF, allowed_at, given_at, without_off
from .merging import Patch, merged, plain
from .older_shapes import TRUST_FIELDS, RulesMisfit, Step, moved
from .rules import RuleSet
from .text_positions import line_of

_UNIONS = (Union, UnionType)
_LISTS = (list, tuple, set, frozenset)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
POLICY_FIELDS = frozenset({"policies", "prerequisite_policies", "pattern_detection", "version"})
"""Fields of a policies file."""

SHOWN_FIELDS = frozenset({"files", "environment", "rules"})
"""Fields of the JSON that `config show --json` prints; as a rules file its `rules` are used."""


class RulesDocument:
    """Parsed text of rules.

    Attributes:
        name: name of the file, for messages.
        patch: values it sets, in the shape of `RuleSet`; older spellings are converted.
    """

    def __init__(self, name: str, text: str, *, suffix: str = "") -> None:
        """Parse TOML or JSON, selected by the file's suffix or by the first character."""
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
        except RulesMisfit as misfit:
            raise self.fault(misfit) from misfit

    def over(self, base: RuleSet) -> RuleSet:
        """Return `base` with the values of this document.

        Raises:
            ConfigError: a value is invalid; the message names file, line, field and fix.
        """
        try:
            return overlaid(base, self.patch)
        except RulesMisfit as misfit:
            raise self.fault(misfit) from misfit

    def only_policies(self) -> RulesDocument:
        """Return this document after checking that it holds only policies.

        Raises:
            ConfigError: it holds other rules.
        """
        for name in self.written:
            if name not in POLICY_FIELDS:
                what = "a policies file holds policies and nothing else; other rules belong into the rules file"
                raise self.fault(RulesMisfit((name,), what))
        return self

    def fault(self, misfit: RulesMisfit) -> ConfigError:
        """Return the error with the file, the line and the path as written."""
        path = misfit.path
        if path[:1] == ("trust",) and "trust" not in self.written:
            path = path[1:]
        path = (*self._above, *path)
        line = line_of(self._text, path, as_json=self._as_json) if path else None
        place = f"{self.name}:{line}" if line else self.name
        return ConfigError(f"{place}: {RulesMisfit(path, misfit.what)}")


def as_toml(rules: RuleSet, *, everything: bool = False) -> str:
    """Render rules as TOML that loads to the same rules: those that differ from the defaults, or all."""
    shipped = dict(_lines(plain(RuleSet())))
    return "".join(
        f"{name} = {value}\n" for name, value in _lines(plain(rules)) if everything or shipped.get(name) != value
    )


def _lines(table: Patch, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted key and value of everything in a table, as TOML."""
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


def overlaid(base: RuleSet, patch: Patch) -> RuleSet:
    """Return `base` with all values of a patch.

    Raises:
        RulesMisfit: with the path of the fault, and the valid values.
    """
    if not patch:
        return base
    document = merged(plain(base), without_off(patch))
    try:
        return msgspec.convert(document, RuleSet)
    except msgspec.ValidationError as error:
        found = _misfit_in(document, RuleSet)
        raise found or RulesMisfit((), str(error.__cause__ or error)) from error


def _misfit_in(value: Any, annotation: Any, path: tuple[Step, ...] = ()) -> RulesMisfit | None:
    """Return the first invalid value of a document; None if all are valid.

    Every value is converted separately, so that path and fault come from the document and not from an error's text.
    """
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        return _misfit_below(value, annotation, path) or _misfit_of(value, path, error)
    return None


def _misfit_below(value: Any, annotation: Any, path: tuple[Step, ...]) -> RulesMisfit | None:
    for kind in get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,):
        plain_kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        inner = get_args(plain_kind)
        match value:
            case Mapping() if isinstance(plain_kind, type) and issubclass(plain_kind, msgspec.Struct):
                return _misfit_of_struct(value, plain_kind, path)
            case Mapping() if get_origin(plain_kind) is dict:
                for name, one in value.items():
                    if _misfit_in(name, inner[0]) is not None:
                        return RulesMisfit(path, f"{name!r} is no name here; it must be {allowed_at(path, key=True)}")
                    if found := _misfit_in(one, inner[1], (*path, name)):
                        return found
            case list() if inner and get_origin(plain_kind) in _LISTS:
                found_at = (_misfit_in(one, inner[0], (*path, at)) for at, one in enumerate(value))
                return next(filter(None, found_at), None)
    return None


def _misfit_of_struct(
    value: Mapping[str, Any], kind: type[msgspec.Struct], path: tuple[Step, ...]
) -> RulesMisfit | None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name, one in value.items():
        if name not in fields:
            near = difflib.get_close_matches(name, _known_names(), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "remove it, or look the name up in the rules reference"
            return RulesMisfit((*path, name), f"there is no such rule; {hint}")
        if found := _misfit_in(one, fields[name].type, (*path, name)):
            return found
    missing = next((name for name, field in fields.items() if field.required and name not in value), None)
    return RulesMisfit(path, f"{missing} is missing") if missing else None


def _misfit_of(value: Any, path: tuple[Step, ...], error: msgspec.ValidationError) -> RulesMisfit:
    """Return the fault of a value: the message of its own validation, else the values that its type allows."""
    if error.__cause__ is not None:
        return RulesMisfit(path, str(error.__cause__))
    return RulesMisfit(path, f"must be {allowed_at(path) or 'something else'}, not {given_at(value, ())}")


def _known_names() -> list[str]:
    base = rules_module.RulesBase
    kinds = [kind for kind in vars(rules_module).values() if isinstance(kind, type) and issubclass(kind, base)]
    return sorted({field for kind in kinds for field in kind.__struct_fields__} | TRUST_FIELDS)

"""Merges rules: a layer sets some fields, all others are inherited from the layer below.

See docs/design/semantics.md#settings.

Files, scopes and the environment change rules only by this merge. Tables merge key by key, lists and single values are
replaced, null is a value (it disables a threshold).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

StructT = TypeVar("StructT", bound=msgspec.Struct)

Patch = Mapping[str, Any]
"""Part of a document in the shape of a struct."""


def overlaid(base: StructT, patch: Patch) -> StructT:
    """Return `base` with all values of the patch.

    Raises:
        msgspec.ValidationError: the result is invalid; its message has the path in the patch.
    """
    if not patch:
        return base
    return msgspec.convert(merged(plain(base), patch), type(base))


def merged(below: Patch, above: Patch) -> dict[str, Any]:
    """Merge two documents: tables are merged, all other values come from `above`."""
    result = dict(below)
    for name, value in above.items():
        under = result.get(name)
        result[name] = merged(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return result


def plain(value: Any) -> Any:
    """Convert a struct to a document, including defaults; unset fields are left out."""
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return {name: plain(field) for name, field in fields if field is not UNSET}
    if isinstance(value, Mapping):
        return {str(name): plain(field) for name, field in value.items()}
    if isinstance(value, (frozenset, set)):
        return sorted(map(str, value))
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, str) else value


def leaves(patch: Patch, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return every single value of a document by its path; empty tables are left out."""
    found: dict[tuple[str, ...], Any] = {}
    for name, value in patch.items():
        path = (*above, str(name))
        if isinstance(value, Mapping):
            found |= leaves(value, path)
        else:
            found[path] = value
    return found

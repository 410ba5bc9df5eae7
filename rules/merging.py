"""Base of all rules: their struct, their number types, and the merge of documents.

Files, scopes and the environment change rules only by this merge: a layer sets some fields, all others are inherited
from the layer below (docs/design/semantics.md#settings). Tables merge key by key, lists and single values are replaced,
null is a value (it disables a threshold).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Threshold = Annotated[int, Meta(ge=1, le=100)]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]
Wait = Annotated[float, Meta(ge=0, le=31_536_000)]
Ratio = Annotated[float, Meta(gt=0, le=1)]
Score = Annotated[float, Meta(ge=0, le=1)]


class RulesBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base struct of all rules: frozen, keyword-only, unknown names are rejected."""


Patch = Mapping[str, Any]
"""Part of a document in the shape of a struct."""


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

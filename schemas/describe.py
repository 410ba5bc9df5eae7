"""What a struct's docstring says, in pieces: its summary, and a line for each attribute."""

from __future__ import annotations

import re
from inspect import cleandoc
from textwrap import dedent

import msgspec

_HEADING = re.compile(r"^Attributes:$", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+): (.*(?:\n +.*)*)", re.MULTILINE)
_SPACE = re.compile(r"\s+")


def _parts(kind: type) -> tuple[str, str]:
    text = cleandoc(kind.__doc__ or "")
    summary, *rest = _HEADING.split(text, maxsplit=1)
    return summary.strip(), dedent(rest[0].strip("\n")) if rest else ""


def summary_of(kind: type[msgspec.Struct]) -> str:
    """The docstring above its attributes, as one paragraph per line."""
    return "\n".join(_SPACE.sub(" ", paragraph) for paragraph in _parts(kind)[0].split("\n\n"))


def attributes_of(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Description of each attribute, those of the base structs first."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            for name, text in _ENTRY.findall(_parts(base)[1]):
                found[name] = _SPACE.sub(" ", text)
    return found

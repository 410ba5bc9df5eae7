"""Generates `generated/`: a JSON Schema (2020-12) of each wire type and guard envelope, and one AsyncAPI 3.1 document.

`python -m trustfold.schemas.generate` writes, `--check` compares and fails with the list of files that differ. All
contents come from the structs, their docstrings, the examples and the topic catalogue.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from inspect import cleandoc
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec

from .asyncapi import asyncapi
from .examples import ENVELOPE_EXAMPLES, EXAMPLES
from .public_state import STATE_KINDS, StateUpdated
from .tool_envelopes import ENVELOPES
from .topics import TOPICS

HOME = Path(__file__).resolve().parent / "generated"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def kinds() -> dict[str, type[msgspec.Struct]]:
    """Return every wire type of the public topics with its struct."""
    return {wire: kind for topic in TOPICS.values() for wire, kind in zip(topic.types, topic.kinds, strict=True)}


def components(structs: Iterable[type[msgspec.Struct]], ref_template: str) -> dict[str, dict[str, Any]]:
    """Return the schemas of structs and of all structs they refer to, by name, described by their docstrings.

    The schema of a public state is a union of its kinds.
    """
    structs = list(structs)
    if StateUpdated in structs:
        structs += STATE_KINDS.values()
    _, made = msgspec.json.schema_components(structs, ref_template=ref_template)
    by_name = {kind.__name__: kind for kind in _with_parts(structs)}
    for name, schema in made.items():
        kind = by_name.get(name)
        if kind is None:
            if "description" in schema:
                schema["description"] = cleandoc(schema["description"])  # as Python itself does from 3.13 on
            continue
        paragraphs = _parts(kind)[0].split("\n\n")
        schema["description"] = "\n".join(_SPACE.sub(" ", one) for one in paragraphs)
        on_the_wire = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
        for attribute, text in attributes_of(kind).items():
            field = on_the_wire.get(attribute, attribute)
            if field in schema["properties"]:
                schema["properties"][field] = {"description": text, **schema["properties"][field]}
    if StateUpdated in structs:
        of_kinds = [{"$ref": ref_template.format(name=kind.__name__)} for kind in STATE_KINDS.values()]
        made[StateUpdated.__name__]["oneOf"] = of_kinds
    return made


def _with_parts(structs: Iterable[type[msgspec.Struct]]) -> set[type[msgspec.Struct]]:
    """Return structs and the structs inside of them."""
    found: set[type[msgspec.Struct]] = set()
    waiting: list[Any] = [msgspec.inspect.type_info(kind) for kind in structs]
    while waiting:
        info = waiting.pop()
        if isinstance(info, msgspec.inspect.StructType) and info.cls not in found:
            found.add(info.cls)
            waiting += [field.type for field in info.fields]
        elif isinstance(info, msgspec.inspect.UnionType):
            waiting += info.types
        elif isinstance(info, msgspec.inspect.Metadata):
            waiting.append(info.type)
        elif isinstance(info, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
            waiting.append(info.item_type)
    return found


def json_schema(wire_type: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the complete schema of one wire type."""
    parts = components([kind], "#/$defs/{name}")
    own = parts.pop(kind.__name__)
    own.pop("title")
    made: dict[str, Any] = {
        "$schema": DIALECT,
        "$id": f"urn:trustfold:schema:1:{wire_type}",  # 1: the major version of the contract
        "title": wire_type,
        "description": own.pop("description"),
        **own,
        "examples": [EXAMPLES.get(wire_type) or ENVELOPE_EXAMPLES[wire_type]],
    }
    if parts:
        made["$defs"] = dict(sorted(parts.items()))
    return made


def documents() -> dict[str, str]:
    """Return every generated file as text, by name."""
    known = kinds()
    made: dict[str, Any] = {
        f"{name}.schema.json": json_schema(name, kind) for name, kind in (known | ENVELOPES).items()
    }
    made["asyncapi.json"] = asyncapi(TOPICS, components(known.values(), "#/components/schemas/{name}"))
    return {name: json.dumps(document, indent=2, ensure_ascii=False) + "\n" for name, document in made.items()}


def differing(home: Path = HOME) -> list[str]:
    """Return the names of generated files that are missing, stale or obsolete."""
    made = documents()
    present = {path.name for path in home.glob("*.json")}
    return sorted(
        name
        for name in made.keys() | present
        if name not in present or name not in made or (home / name).read_text(encoding="utf-8") != made[name]
    )


def write(home: Path = HOME) -> list[str]:
    """Write the generated files; return the names of those that changed."""
    made = documents()
    changed = differing(home)
    home.mkdir(parents=True, exist_ok=True)
    for name in changed:
        if name in made:
            (home / name).write_text(made[name], encoding="utf-8")
        else:
            (home / name).unlink()
    return changed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; exit code 1 if `--check` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m trustfold.schemas.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; fail when a file differs from the code")
    parser.add_argument("--home", type=Path, default=HOME, help="folder of the generated files")
    arguments = parser.parse_args(argv)
    if not arguments.check:
        changed = write(arguments.home)
        sys.stdout.write(f"{len(changed)} files changed in {arguments.home}\n")
        return 0
    stale = differing(arguments.home)
    if stale:
        sys.stderr.write("generated files differ from the code: " + ", ".join(stale) + "\n")
        sys.stderr.write("run `python -m trustfold.schemas.generate` and commit what it changes\n")
    return 1 if stale else 0


_HEADING = re.compile(r"^Attributes:$", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+): (.*(?:\n +.*)*)", re.MULTILINE)
_SPACE = re.compile(r"\s+")


def _parts(kind: type) -> tuple[str, str]:
    """Split a docstring into what stands before its attributes, and these."""
    text = cleandoc(kind.__doc__ or "")
    summary, *rest = _HEADING.split(text, maxsplit=1)
    return summary.strip(), dedent(rest[0].strip("\n")) if rest else ""


def attributes_of(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the description of each attribute, those of the base structs first."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            for name, text in _ENTRY.findall(_parts(base)[1]):
                found[name] = _SPACE.sub(" ", text)
    return found


if __name__ == "__main__":
    sys.exit(main())

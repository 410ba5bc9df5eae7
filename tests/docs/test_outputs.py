"""The page on outputs (docs/outputs.md) names every field of every decision, compared with the contract."""

from __future__ import annotations

from pathlib import Path

import msgspec
from trustfold.schemas.public_state import STATE_KINDS, DecisionBase, StateUpdated
from trustfold.schemas.topics import TOPICS

PAGE = Path(__file__).parents[2] / "docs" / "outputs.md"


def row(cell: str, kind: type[msgspec.Struct]) -> str:
    """Row of a type: its fields in the order of the struct, without the envelope."""
    fields = [name for name in kind.__struct_encode_fields__ if name not in DecisionBase.__struct_encode_fields__]
    return f"| {cell} | {', '.join(f'`{name}`' for name in fields)} |"


def test_the_table_of_fields_is_that_of_the_contract() -> None:
    """A new field of a decision needs its row on the page; the message prints it."""
    kinds = [
        (f"`{wire}`", kind)
        for topic in TOPICS.values()
        for wire, kind in zip(topic.types, topic.kinds, strict=True)
        if issubclass(kind, DecisionBase) and kind is not StateUpdated
    ] + [(f"`state.updated`, kind `{name}`", kind) for name, kind in STATE_KINDS.items()]
    expected = [row(cell, kind) for cell, kind in kinds]
    section = PAGE.read_text(encoding="utf-8").partition("\n## Fields\n")[2].partition("\n## ")[0]
    written = [line for line in section.splitlines() if line.startswith("| `")]
    differing = [line for line in expected if line not in written]
    assert not differing, "these rows belong below Fields in docs/outputs.md:\n" + "\n".join(differing)
    assert written == expected

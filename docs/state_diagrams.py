"""Draws the state machines of trust and of a circuit from their transition tables.

`python docs/state_diagrams.py` writes `docs/design/trust.svg` and `docs/design/breaker.svg`; `--check` fails if the
files differ from the tables. The tables give states, arrows and labels; only the places of the states are chosen here.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from html import escape
from math import hypot
from pathlib import Path
from typing import Any, NamedTuple

from trustfold.projections.tool import breaker, trust

HOME = Path(__file__).resolve().parent / "design"

WIDTH, HEIGHT = 130, 46
"""Pixels of a state's box."""

LINE = 15
"""Pixels from one line of a label to the next."""

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2933; text-anchor: middle; dominant-baseline: central }
  .card { fill: #fff } .state { fill: #e6f2f0; stroke: #0b6157; stroke-width: 1.5 } .name { font-weight: 600 }
  path { fill: none; stroke: #52606d; stroke-width: 1.4 } marker path { fill: #52606d; stroke: none }
  .label { font-size: 12px; paint-order: stroke; stroke: #fff; stroke-width: 5px }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e7eb } .card { fill: #15191c } .state { fill: #12302c; stroke: #5fd0bd }
    path { stroke: #9aa5b1 } marker path { fill: #9aa5b1 } .label { stroke: #15191c }
  }
"""


class DiagramPoint(NamedTuple):
    """Pixels of a point; of a state, of its middle."""

    x: float
    y: float


class StateDiagram(NamedTuple):
    """One picture.

    Attributes:
        file: name of the picture.
        title: what it shows, for people who do not see it.
        size: pixels of the picture.
        table: transitions: (state, move) → next state.
        places: where each state stands.
        bends: pixels by which the arrow between two states leaves the straight line, to its left; 24 if not named.
    """

    file: str
    title: str
    size: DiagramPoint
    table: Mapping[Any, StrEnum]
    places: Mapping[str, DiagramPoint]
    bends: Mapping[tuple[str, str], float]


DIAGRAMS = (
    StateDiagram(
        "trust.svg",
        "States and transitions of trust",
        DiagramPoint(1000, 720),
        trust.TRANSITIONS,
        {
            "trusted": DiagramPoint(120, 400),
            "escalated": DiagramPoint(500, 170),
            "recovering": DiagramPoint(500, 400),
            "blocked": DiagramPoint(880, 290),
            "removed": DiagramPoint(500, 650),
        },
        {
            ("trusted", "escalated"): 45,
            ("escalated", "trusted"): 8,
            ("escalated", "recovering"): 64,
            ("recovering", "escalated"): 64,
            ("trusted", "blocked"): 270,
            ("blocked", "trusted"): 130,
            ("recovering", "blocked"): -20,
            ("escalated", "removed"): 130,
            ("recovering", "removed"): -30,
        },
    ),
    StateDiagram(
        "breaker.svg",
        "States and transitions of a circuit",
        DiagramPoint(900, 500),
        breaker.TRANSITIONS,
        {
            "closed": DiagramPoint(130, 90),
            "open": DiagramPoint(770, 90),
            "half_open": DiagramPoint(450, 240),
            "forced_open": DiagramPoint(450, 440),
        },
        {
            ("half_open", "closed"): 0,
            ("closed", "forced_open"): -45,
            ("forced_open", "closed"): 110,
            ("open", "forced_open"): 60,
        },
    ),
)


def arrows(table: Mapping[Any, StrEnum]) -> dict[tuple[str, str], list[str]]:
    """Moves from one state to another, in the order of the table."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (before, move), after in table.items():
        found[before.value, after.value].append(move.value)
    return found


def border(at: DiagramPoint, towards: DiagramPoint) -> DiagramPoint:
    """Point at which a line from the middle of a state leaves its box, with a gap of four pixels."""
    x, y = towards.x - at.x, towards.y - at.y
    scale = min((WIDTH / 2 + 4) / abs(x) if x else 1e9, (HEIGHT / 2 + 4) / abs(y) if y else 1e9)
    return DiagramPoint(at.x + x * scale, at.y + y * scale)


def arrow(diagram: StateDiagram, ends: tuple[str, str], moves: list[str]) -> str:
    """One arrow and its label."""
    start, end = diagram.places[ends[0]], diagram.places[ends[1]]
    length = hypot(end.x - start.x, end.y - start.y)
    bend = diagram.bends.get(ends, 24)
    over = DiagramPoint((end.y - start.y) / length * bend, -(end.x - start.x) / length * bend)
    middle = DiagramPoint((start.x + end.x) / 2 + 2 * over.x, (start.y + end.y) / 2 + 2 * over.y)
    first, last = border(start, middle), border(end, middle)
    label = DiagramPoint((first.x + 2 * middle.x + last.x) / 4, (first.y + 2 * middle.y + last.y) / 4)
    curve = f"M{first.x:.0f} {first.y:.0f} Q{middle.x:.0f} {middle.y:.0f} {last.x:.0f} {last.y:.0f}"
    top = label.y - LINE * (len(moves) - 1) / 2
    lines = "".join(
        f'<text class="label" x="{label.x:.0f}" y="{top + LINE * number:.0f}">{escape(move)}</text>'
        for number, move in enumerate(moves)
    )
    return f'<path d="{curve}" marker-end="url(#tip)"/>{lines}'


def state(name: str, at: DiagramPoint) -> str:
    """One state: a box with its name."""
    return (
        f'<rect class="state" x="{at.x - WIDTH / 2:.0f}" y="{at.y - HEIGHT / 2:.0f}" width="{WIDTH}" height="{HEIGHT}" '
        f'rx="10"/><text class="name" x="{at.x:.0f}" y="{at.y:.0f}">{escape(name)}</text>'
    )


def draw(diagram: StateDiagram) -> str:
    """The picture as SVG.

    Raises:
        KeyError: the table names a state that has no place.
    """
    width, height = diagram.size
    view = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    tip = 'viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {view} role="img" aria-label="{escape(diagram.title)}">',
        f"<title>{escape(diagram.title)}</title><style>{STYLE}</style>",
        f'<defs><marker id="tip" {tip}><path d="M0 0L10 5L0 10z"/></marker></defs>',
        f'<rect class="card" width="{width}" height="{height}" rx="8"/>',
        *(arrow(diagram, ends, moves) for ends, moves in arrows(diagram.table).items()),
        *(state(name, at) for name, at in diagram.places.items()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    """Write the pictures, or compare them with the tables."""
    drawn = {HOME / diagram.file: draw(diagram) for diagram in DIAGRAMS}
    if arguments == ["--check"]:
        stale = [file.name for file, text in drawn.items() if not file.exists() or file.read_text() != text]
        if stale:
            sys.stderr.write(f"{', '.join(stale)}: not drawn from the present tables; run `make schemas`\n")
        return 1 if stale else 0
    for file, text in drawn.items():
        file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`make structure`: counts that say how much of the code a change touches, measured on the code itself.

Static counts come from the syntax trees. Two are taken from a run: the functions that a finished call passes until its
nudge, and those that a rule's value passes from the text of its file to the line that compares it.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support")]

from import_graph import circles, import_graph, module_files  # noqa: E402 - the path is set above
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from story import Story  # noqa: E402
from trustfold.projections.local_topology import LocalTopology  # noqa: E402
from trustfold.projections.session.session_state import SessionState  # noqa: E402
from trustfold.projections.topology import STAGES  # noqa: E402
from trustfold.rules.parser import RulesDocument  # noqa: E402
from trustfold.rules.rules import RuleSet  # noqa: E402
from trustfold.schemas.vocabulary import PatternType  # noqa: E402

MOST_PARAMETERS = 6
TARGETS = {
    "import circles": 0,
    "fields of SessionState": 30,
    f"functions with more than {MOST_PARAMETERS} parameters": 0,
    "files that name a pattern, at median": 3,
    "functions of the session stage from a finished call to its nudge": 25,
    "functions from a rule's line to the line that uses it": 8,
    "lines of the product": 68_000,
    "lines of the tests": 58_000,
    "files of the product": 400,
    "names of classes that stand more than once": 0,
    "names of modules that stand more than twice": 0,
}


class Trace:
    """Functions of the package that are called while it is active, in the order of their first call.

    Attributes:
        called: file and name of each.
        stacks: for each function of interest, the deepest stack of the package's functions that led to it.
    """

    def __init__(self) -> None:
        self.called: dict[str, None] = {}
        self.stacks: dict[str, list[str]] = {}

    def __enter__(self) -> Self:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and (name := _name(frame)):
            self.called.setdefault(name)
            stack = []
            here: FrameType | None = frame
            while here is not None:
                if found := _name(here):
                    stack.append(found)
                here = here.f_back
            if len(stack) > len(self.stacks.get(name, ())):
                self.stacks[name] = stack[::-1]


def _name(frame: FrameType) -> str:
    """File and qualified name of a frame of the package; empty for frames of others, and for comprehensions."""
    path = Path(frame.f_code.co_filename)
    name = frame.f_code.co_qualname
    if "trustfold" not in path.parts or name.rpartition(".")[2].startswith("<"):
        return ""
    return f"{'/'.join(path.parts[len(path.parts) - 1 - path.parts[::-1].index('trustfold') + 1 :])}:{name}"


def parameters(path: Path) -> Iterator[tuple[str, int]]:
    """Functions of a file with more parameters than allowed, without `self`, `cls` and a command's options."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not any(
            map(_is_of_click, node.decorator_list)
        ):
            names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            count = len([name for name in names if name not in {"self", "cls"}])
            if count > MOST_PARAMETERS:
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", count


def _is_of_click(decorator: ast.expr) -> bool:
    """Whether a decorator makes a command of a function, or gives it options."""
    return any(word in ast.unparse(decorator) for word in ("click.", ".command(", "_options"))


def files_of_patterns() -> dict[str, list[str]]:
    """Files of the package that name each behavioural pattern."""
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in module_files().values()}
    return {
        pattern.value: sorted(
            name
            for name, text in texts.items()
            if f"PatternType.{pattern.name}" in text or f'"{pattern.value}"' in text
        )
        for pattern in PatternType
    }


def functions_to_a_nudge() -> list[str]:
    """Functions of the session stage that the end of a call passes until its nudge is emitted."""
    topology = LocalTopology(RuleSet(), stages=STAGES[:1])
    for topic, value in _repeated_calls(9):
        with Trace() as trace:
            outputs = topology.feed(topic, (value,))
        if any(output.topic == "nudges" for output in outputs):
            return [name for name in trace.called if name.startswith("projections/session/")]
    return []


def hops_of_a_rule() -> list[str]:
    """Functions on the way of a value from a rules file's text to the detector that compares it."""
    with Trace() as loading:
        rules = RulesDocument("rules.toml", "[behaviour.repetitive_calls]\nminor = 2\n").over(RuleSet())
    topology = LocalTopology(rules, stages=STAGES[:1])
    with Trace() as folding:
        for topic, value in _repeated_calls(2):
            topology.feed(topic, (value,))
    detecting = [stack for name, stack in folding.stacks.items() if name.endswith("RepetitiveCalls.on_finish")]
    made = [stack for name, stack in loading.stacks.items() if name.endswith("overlaid")]
    return [*max(made, key=len, default=[]), *max(detecting, key=len, default=[])]


def _repeated_calls(times: int) -> list[tuple[str, bytes]]:
    """Records of one session that calls a tool with the same arguments again and again."""
    return Story().works("search", {"q": "x"}, times=times).records


def counts() -> dict[str, tuple[int, list[str]]]:
    """Each count with what was counted."""
    files = {str(path.relative_to(ROOT)): path for path in module_files().values()}
    sizes = {name: len(path.read_text().splitlines()) for name, path in files.items()}
    tests = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py")}
    classes = Counter(
        node.name
        for path in files.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    stems = Counter(path.stem for path in files.values() if path.stem not in {"__init__", "__main__"})
    twice = sorted(name for name, times in classes.items() if times > 1)
    thrice = sorted(stem for stem, times in stems.items() if times > 2)
    patterns = files_of_patterns()
    named = [f"{name}: {' '.join(found)}" for name, found in patterns.items()]
    long = [name for path in files.values() for name, _ in parameters(path)]
    rounds, nudge, hops = circles(import_graph()), functions_to_a_nudge(), hops_of_a_rule()
    values: list[tuple[int, list[str]]] = [
        (len(rounds), [" ".join(one) for one in rounds]),
        (len(SessionState.__struct_fields__), list(SessionState.__struct_fields__)),
        (len(long), long),
        (round(median(map(len, patterns.values()))), named),
        (len(nudge), nudge),
        (len(hops), hops),
        (sum(sizes.values()), [f"{lines:5,} {name}" for name, lines in sorted(sizes.items())]),
        (sum(tests.values()), [f"{lines:5,} {name}" for name, lines in sorted(tests.items())]),
        (len(sizes), []),
        (len(twice), twice),
        (len(thrice), thrice),
    ]
    return dict(zip(TARGETS, values, strict=True))


def main() -> int:
    """Print the counts beside their targets; exit code 1 where one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document, with everything that was counted")
    parser.add_argument("--show", action="store_true", help="list what was counted")
    options = parser.parse_args()
    found = counts()
    if options.json:
        print(json.dumps({name: {"count": n, "target": TARGETS[name], "of": of} for name, (n, of) in found.items()}))
        return 0
    table = Table("count", "now", "target")
    for name, (count, _) in found.items():
        table.add_row(name, f"{count:,}", f"{TARGETS[name]:,}", style="" if count <= TARGETS[name] else "bold")
    Console().print(table)
    if options.show:
        for name, (_, of) in found.items():
            print(f"\n{name}\n  " + "\n  ".join(of))
    return int(any(count > TARGETS[name] for name, (count, _) in found.items()))


if __name__ == "__main__":
    sys.exit(main())

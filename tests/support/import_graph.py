"""Import graph of the package: which module imports which, at run time, inside of functions, or for types alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def module_files(root: Path = ROOT) -> dict[str, Path]:
    """Every module of the package by its dotted name below `trustfold`."""
    folders = [init.parent for init in root.glob("*/__init__.py")]
    files = [*root.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))]
    return {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def import_graph(root: Path = ROOT) -> dict[str, set[str]]:
    """What each module imports of the package: also inside of functions and below `TYPE_CHECKING`."""
    modules = module_files(root)
    return {name: set(_imported(name, path, modules)) - {name} for name, path in modules.items()}


@cache
def statements_of(path: Path) -> list[ast.stmt]:
    """Every statement of a module, also inside of others; to walk through its expressions takes longer."""
    found = ast.parse(path.read_text()).body
    for one in found:  # grows meanwhile
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            found += getattr(one, part, ())
    return found


def _imported(name: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    parts = name.split(".")
    package = parts if path.name == "__init__.py" and name != "__init__" else parts[:-1]
    for node in statements_of(path):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
        source = ".".join(filter(None, base))
        for alias in node.names:
            inner = ".".join(filter(None, (source, alias.name)))
            if inner in modules:
                yield inner
            elif source in modules:
                yield source


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            group, stack[at:] = stack[at:], []
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found

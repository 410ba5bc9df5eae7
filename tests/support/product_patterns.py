"""Every regular expression of the product: those that its modules hold, and those that its functions compile."""

from __future__ import annotations

import ast
import gc
import importlib
import pkgutil
import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import trustfold

_COMPILES = {"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}
"""Functions of `re` that compile an expression."""


class Found(NamedTuple):
    """Regular expression of the product, the module and name (or line) where it is, and whether it is searched for."""

    module: str
    name: str
    pattern: re.Pattern[Any]
    searched: bool
    whole: bool


@cache
def modules() -> dict[str, ModuleType]:
    """Every module of the product, imported."""
    for info in pkgutil.walk_packages(trustfold.__path__, "trustfold."):
        if not info.name.endswith("__main__") and info.name.split(".")[1] not in {"tests", "docs", "build"}:
            with suppress(
                ModuleNotFoundError
            ):  # of a framework; `tests/patterns` asserts that such a module holds none
                importlib.import_module(info.name)
    return {name: module for name, module in sys.modules.items() if name.split(".")[0] == "trustfold"}


@cache
def held_patterns() -> tuple[Found, ...]:
    """The expressions that objects of the modules refer to."""
    ours = modules()
    foreign = {id(vars(module)) for name, module in list(sys.modules.items()) if name not in ours}
    found: dict[int, Found] = {}
    for module_name, module in sorted(ours.items()):
        for name, value in sorted(vars(module).items()):
            if name.startswith("__"):
                continue
            for pattern in _patterns_below(value, module_name, foreign):
                direct = isinstance(value, re.Pattern | BuiltinFunctionType)
                methods = _methods_of(module).get(name, set()) - {"pattern", "flags"} if direct else {""}
                old = found.get(id(pattern), Found(module_name, name, pattern, searched=False, whole=False))
                found[id(pattern)] = old._replace(
                    searched=old.searched or not methods <= {"match", "fullmatch"},
                    whole=old.whole or "fullmatch" in methods,
                )
    return tuple(found.values())


def _patterns_below(value: Any, module: str, foreign: set[int]) -> list[re.Pattern[Any]]:
    seen: set[int] = set()
    found, waiting = [], [value]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, ModuleType | str | bytes | int) or id(one) in foreign:
            continue
        seen.add(id(one))
        if isinstance(one, re.Pattern):
            found.append(one)
        elif isinstance(one, type | FunctionType) and one.__module__ != module:
            continue
        elif isinstance(one, FunctionType):
            waiting += [one.__closure__, one.__defaults__, one.__kwdefaults__]
        elif isinstance(one, BuiltinFunctionType):
            waiting.append(one.__self__)
        else:
            waiting += gc.get_referents(one)
    return found


@cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))


@cache
def _methods_of(module: ModuleType) -> dict[str, set[str]]:
    """Names that a module uses, with the attributes read of each; an empty one stands for any."""
    uses: dict[str, set[str]] = {}
    nodes = [*ast.walk(_tree(module))]
    attributes = {id(node.value): node.attr for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses.setdefault(node.id, set()).add(attributes.get(id(node), ""))
    return uses


def modules_without_import() -> list[Path]:
    """Files of the product that could not be imported, because a framework is not installed."""
    root = Path(trustfold.__file__ or "").parent
    known = {Path(module.__file__ or "").resolve() for module in modules().values()}
    packages = {Path(path).name for path in {name.split(".")[1] for name in modules() if "." in name}}
    return sorted(
        file.resolve()
        for package in packages
        for file in (root / package).rglob("*.py")
        if file.resolve() not in known and file.name != "__main__.py"
    )


@cache
def compiled_in_functions() -> dict[tuple[str, str], list[str | None]]:
    """Expressions that functions compile: by module and function, as written; None for one that is computed."""
    found: dict[tuple[str, str], list[str | None]] = {}

    def walk(node: ast.AST, module: str, function: str) -> None:
        for child in ast.iter_child_nodes(node):
            inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            called = child.func if isinstance(child, ast.Call) else None
            if inside and isinstance(called, ast.Attribute) and called.attr in _COMPILES and _is_re(called.value):
                first = child.args[0]
                literal = first.value if isinstance(first, ast.Constant) else None
                found.setdefault((module, inside), []).append(literal)
            walk(child, module, inside)

    for name, module in sorted(modules().items()):
        if "re" in vars(module):
            walk(_tree(module), name, "")
    return found


def _is_re(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "re"

"""Mutants of a Python file: small changes of its syntax, each of which a test should notice.

Changed are comparisons, boolean and arithmetic operators, numbers, truth values, conditions, `min` and `max`, `break`
and `continue`, returned values, and statements, which are removed. Untouched stay what no test should hold: docstrings,
annotations, decorators, options of classes, texts and log lines.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
}
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.BitOr: "&",
    ast.BitAnd: "|",
}  # fmt: skip
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}
LARGE = 1000
"""From here on numbers are limits, sizes and times: they are doubled and halved, as one more changes nothing."""
LOGGED = {"log_call", "log_event"}
"""Functions that write a log line."""


class Mutant(NamedTuple):
    """A change of one place of a file. Its name stays the same while other lines of the file move."""

    name: str
    file: str
    line: int
    start: int
    """Where in the file's bytes the changed piece begins, and where it ends."""
    end: int
    text: str
    """What stands there instead."""
    at_import: bool
    """Whether the place runs when its module is imported, and not when one of its functions is called."""

    def source(self, root: Path) -> str | None:
        """The whole file, changed; None where that is no valid Python or compiles to the same program."""
        old = (root / self.file).read_bytes()
        new = old[: self.start] + self.text.encode() + old[self.end :]
        try:
            return None if compile(new, "", "exec") == compile(old, "", "exec") else new.decode()
        except SyntaxError:
            return None


class Change(NamedTuple):
    """Another text for a piece of source, which belongs to a class or a function."""

    line: int
    start: int
    end: int
    text: str
    scope: str


def mutants_of(root: Path, file: str) -> list[Mutant]:
    """All mutants of a file, in its order."""
    source = (root / file).read_bytes()
    lines = source.decode().splitlines()
    seen: Counter[str] = Counter()
    found = []
    for change in _Finder(source).changes():
        was = source[change.start : change.end].decode()
        name = f"{file} {change.scope}: {_short(was)} -> {_short(change.text)}"
        if len(was) < 12:  # too little to tell which one is meant
            name += f" in {_short(lines[change.line - 1].partition('  # ')[0])}"
        seen[name] += 1
        named = name if seen[name] == 1 else f"{name} #{seen[name]}"
        at_import = not change.scope.endswith("()")
        found.append(Mutant(named, file, change.line, change.start, change.end, change.text, at_import))
    return found


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 90 else f"{text[:60]} … {text[-27:]}"


class _Finder:
    """Changes of one source, found by walking its syntax tree."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._scope: list[str] = []
        self._in_function = False

    def changes(self) -> Iterator[Change]:
        """All changes, from the top to the end."""
        yield from self._visit(ast.parse(self._source))

    def _visit(self, node: ast.AST) -> Iterator[Change]:
        if _is_left_alone(node):
            return
        yield from self._of(node)
        for child in _children(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from self._visit_scope(child)
            else:
                yield from self._visit(child)

    def _visit_scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[Change]:
        before = self._in_function
        self._scope.append(node.name)
        if not isinstance(node, ast.ClassDef):
            for default in (*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)):
                yield from self._visit(default)
            self._in_function = True
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from self._visit_scope(statement)
            else:
                yield from self._visit(statement)
        self._scope.pop()
        self._in_function = before

    def _of(self, node: ast.AST) -> Iterator[Change]:
        """Changes of this very node."""
        yield from self._of_operator(node)
        yield from self._of_value(node)
        yield from self._of_condition(node)
        yield from self._of_statement(node)

    def _of_operator(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                for text in COMPARISONS[type(op)]:
                    yield self._between(node, left, right, text)
            case ast.BoolOp(op=op, values=values):
                text = "or" if isinstance(op, ast.And) else "and"
                joined = f" {text} ".join(self._text(value) for value in values)
                yield self._change(node, f"({joined})")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._change(node, self._text(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC and _counts(left, op, right):
                yield self._between(node, left, right, ARITHMETIC[type(op)])
            case ast.AugAssign(target=target, op=op, value=value):
                if type(op) in ARITHMETIC and _counts(target, op, value):
                    yield self._between(node, target, value, f"{ARITHMETIC[type(op)]}=")

    def _of_value(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Constant(value=bool()):
                yield self._change(node, str(not node.value))
            case ast.Constant(value=int() | float() as number):
                more, less = (number * 2, number // 2) if number >= LARGE else (number + 1, number - 1)
                yield self._change(node, repr(more))
                yield self._change(node, f"({less!r})" if less < 0 else repr(less))
            case ast.Call(func=ast.Name(id=name) as called) if name in OPPOSITES:
                yield self._change(called, OPPOSITES[name])

    def _of_condition(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield from self._negated(test)
            case ast.comprehension(ifs=conditions):
                for condition in conditions:
                    yield from self._negated(condition)

    def _of_statement(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Return(value=value) if value is not None and not _is_none(value):
                yield self._change(node, "return None")
            case ast.Break():
                yield self._change(node, "continue")
            case ast.Continue():
                yield self._change(node, "break")
            case ast.AugAssign() | ast.Delete() | ast.Expr(value=ast.Call() | ast.Await()):
                yield self._change(node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
                yield self._change(node, "pass")

    def _negated(self, test: ast.expr) -> Iterator[Change]:
        if isinstance(test, ast.UnaryOp) or (isinstance(test, ast.Compare) and len(test.ops) == 1):
            return  # a change of its own does that
        yield self._change(test, f"(not {self._text(test)})")

    def _between(self, node: ast.AST, left: ast.expr, right: ast.expr, text: str) -> Change:
        """The whole expression with another operator; its parts keep their parentheses."""
        between = self._source[self._end(left) : self._start(right)]
        # What stands between is the operator, spaces, and parentheses of either part.
        closing = b")" * between.count(b")")
        opening = b"(" * between.count(b"(")
        start, end = self._start(node), self._end(node)
        whole = (
            self._source[start : self._end(left)] + closing + f" {text} ".encode() + opening
            + self._source[self._start(right) : end]
        )  # fmt: skip
        return Change(node.lineno, start, end, whole.decode(), self._where())  # type: ignore[attr-defined]

    def _change(self, node: ast.AST, text: str) -> Change:
        return Change(node.lineno, self._start(node), self._end(node), text, self._where())  # type: ignore[attr-defined]

    def _where(self) -> str:
        return (".".join(self._scope) or "module") + ("()" if self._in_function else "")

    def _text(self, node: ast.expr) -> str:
        return f"({self._source[self._start(node) : self._end(node)].decode()})"

    def _start(self, node: ast.AST) -> int:
        return self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def _end(self, node: ast.AST) -> int:
        return self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """What is inside of a node and may be changed: no annotation, no type variable, no name of a keyword."""
    match node:
        case ast.AnnAssign(value=value):
            if value is not None:
                yield value
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[first, *_]):
            yield first
        case ast.Call(func=ast.Name(id="cast"), args=[_, second]):
            yield second
        case ast.keyword(arg="strict", value=ast.Constant()):
            return  # of `zip`: a check of what is known
        case ast.Lambda(body=body):
            yield body
        case ast.Subscript(value=value, slice=ast.Constant(value=str())):
            yield value
        case _:
            yield from ast.iter_child_nodes(node)


def _is_left_alone(node: ast.AST) -> bool:
    """Whether nothing in a node is changed."""
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__" | "LOGGER")]):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name in LOGGED
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="LOGGER")))):
            return True
    return False


def _counts(left: ast.expr, op: ast.operator, right: ast.expr) -> bool:
    """Whether an operator works on numbers or sets: neither on texts nor on types."""
    for side in (left, right):
        match side:
            case ast.JoinedStr() | ast.Constant(value=str() | bytes()):
                return False
            case ast.Constant(value=None):
                return False
            case ast.Name(id=name) if isinstance(op, ast.BitOr) and name[:1].isupper() and not name.isupper():
                return False
    return True


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None

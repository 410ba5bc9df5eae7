"""The table of environment variables in docs/operating.md, against the code."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from trustfold.cli.doctor_machine import KNOWN_VARIABLES

ROOT = Path(__file__).parents[2]
PACKAGE = (*ROOT.glob("*.py"), *(path for init in ROOT.glob("*/__init__.py") for path in init.parent.rglob("*.py")))
SCRIPTS = (*(ROOT / "ops").rglob("*.py"),)
ROW = re.compile(r"^\| `(TRUSTFOLD_[A-Z_]+)` \| [^|]+ \| [^|]*\| [^|]+ \|$", flags=re.MULTILINE)


def nodes_where(word: str, modules: Sequence[Path]) -> Iterator[tuple[Path, ast.AST]]:
    """Every node of the modules that have a word in them."""
    for module in modules:
        if re.search(word, text := module.read_text()):
            yield from ((module, node) for node in ast.walk(ast.parse(text)))


@cache
def named_in(modules: tuple[Path, ...]) -> set[str]:
    """Variables named by a string of their own: code reads by name, whereas prose has words around it."""
    return {
        node.value
        for _, node in nodes_where("TRUSTFOLD_", modules)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"TRUSTFOLD_[A-Z_]*[A-Z]", node.value)
    }


def test_the_table_lists_every_variable_once() -> None:
    """What the package and its scripts read is in the table, and nothing else is."""
    rows = ROW.findall((ROOT / "docs" / "operating.md").read_text())
    assert len(rows) == len(set(rows))
    assert set(rows) == named_in(PACKAGE) | named_in(SCRIPTS)


def test_no_variable_is_read_by_a_composed_name() -> None:
    """A name put together at run time would escape the table: the environment is asked by whole names only."""
    for module, node in nodes_where("environ|getenv", (*PACKAGE, *SCRIPTS)):
        asked = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and (node.func.attr == "getenv" or ast.unparse(node.func) in {"os.environ.get", "environ.get"})
        )
        if asked:
            assert isinstance(node, ast.Call)
            assert not isinstance(node.args[0], ast.JoinedStr | ast.BinOp), f"{module}:{node.lineno}"


def test_the_doctor_knows_them_all() -> None:
    """What the doctor would call misspelt is read by nobody."""
    assert named_in(PACKAGE) <= KNOWN_VARIABLES <= named_in(PACKAGE) | named_in(SCRIPTS)

"""The guard rails of the flat root that can be read off the tree (docs/decisions/0001-flat-root.md)."""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from import_graph import circles, import_graph, module_files, statements_of

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]

CODE_FOLDERS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
ROOT_MODULES = {"__init__.py", "__main__.py", "config.py", "errors.py"}


def packages_in_tree() -> set[str]:
    """Every folder below the code folders that holds a module, by its dotted name."""
    folders = {path.parent for top in CODE_FOLDERS for path in (ROOT / top).rglob("*.py")}
    return {"trustfold", *(".".join(["trustfold", *folder.relative_to(ROOT).parts]) for folder in folders)}


def test_packages_are_the_tree() -> None:
    """The list of packages in pyproject.toml names every package of the tree, and no other."""
    assert sorted(SETUPTOOLS["packages"]) == sorted(packages_in_tree())


def test_the_image_is_built_from_every_package() -> None:
    """`.dockerignore`, which names what goes into the image, names every folder of the package."""
    kept = (ROOT / ".dockerignore").read_text().split()
    assert [folder for folder in CODE_FOLDERS if f"!{folder}/" not in kept] == []


def test_every_package_says_what_it_holds() -> None:
    """Each package has an `__init__.py` with a docstring."""
    for package in packages_in_tree():
        init = ROOT.joinpath(*package.split(".")[1:], "__init__.py")
        assert init.exists(), f"{package} has no __init__.py"
        assert ast.get_docstring(ast.parse(init.read_text())), f"{package} does not say what it holds"


def test_package_data_names_packages() -> None:
    """Package data is declared for packages that exist."""
    assert set(SETUPTOOLS["package-data"]) <= set(SETUPTOOLS["packages"])


def test_only_four_modules_at_the_root() -> None:
    """Whatever Python file stands at the root ships, so only the four meant to ship stand there."""
    assert {path.name for path in ROOT.glob("*.py")} <= ROOT_MODULES


def test_tests_are_no_package() -> None:
    """There is no `tests/__init__.py`, which would give classes a second identity."""
    assert not (ROOT / "tests" / "__init__.py").exists()


def test_pytest_imports_tests_by_path() -> None:
    """Pytest leaves the import path alone, apart from the helpers of the tests."""
    assert "--import-mode=importlib" in PROJECT["tool"]["pytest"]["addopts"]
    assert PROJECT["tool"]["pytest"]["pythonpath"] == ["tests/support"]


def statements_of_the_package() -> Iterator[tuple[str, ast.stmt]]:
    """Every statement of every module, and the module's path."""
    for path in module_files().values():
        yield from ((str(path.relative_to(ROOT)), node) for node in statements_of(path))


def test_imports_are_relative() -> None:
    """No module imports `trustfold` absolutely, or a folder of it as a package of its own."""
    foreign = {"trustfold", "tests", *CODE_FOLDERS, "cli", "config", "errors"}
    absolute = []
    for path, node in statements_of_the_package():
        if isinstance(node, ast.Import | ast.ImportFrom):
            within = isinstance(node, ast.ImportFrom) and node.level
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if not within and any(name.split(".")[0] in foreign for name in names):
                absolute.append(f"{path}:{node.lineno}")
    assert absolute == []


def test_agents_are_never_discovered() -> None:
    """No Faust app is built with `autodiscover`, which would import every package of trustfold."""
    given = []
    for path in module_files().values():
        if "autodiscover" in (text := path.read_text()):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.keyword) and node.arg == "autodiscover":
                    given.append(ast.unparse(node.value))
                elif isinstance(node, ast.Dict):
                    pairs = zip(node.keys, node.values, strict=True)
                    given += [
                        ast.unparse(value) for key, value in pairs if key and ast.unparse(key) == "'autodiscover'"
                    ]
    assert set(given) == {"False"}


def test_no_import_leads_back() -> None:
    """No module imports, directly or through others, a module that imports it; imports for types alone count, too."""
    assert circles(import_graph()) == []


def test_a_circle_is_found() -> None:
    """Three modules in a circle are one group; a module beside them is none."""
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}
    assert circles(graph) == [["a", "b", "c"]]


def test_a_class_has_two_words_that_are_used_once() -> None:
    """A search for a class finds one, and its name says more than a noun that several layers share."""
    names = Counter(node.name.lstrip("_") for _, node in statements_of_the_package() if isinstance(node, ast.ClassDef))
    assert [name for name, times in names.items() if times > 1] == []
    assert [name for name in names if len(re.findall("[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", name)) < 2] == []


def test_helpers_of_the_tests_have_names_of_their_own() -> None:
    """What tests import by its bare name is one file: no other helper, installed package or library of Python's."""
    paths = [*PROJECT["tool"]["pytest"]["pythonpath"], "tests/streams/support", "ops/kafka"]
    modules = [*(file for path in paths for file in (ROOT / path).glob("*.py"))]
    packages = [file.parent for path in paths for file in (ROOT / path).glob("*/__init__.py")]
    names = Counter(path.stem for path in [*modules, *packages] if path.stem != "__main__")
    assert names
    assert [name for name, count in names.items() if count > 1] == []
    assert sorted(names.keys() & (sys.stdlib_module_names | packages_distributions().keys())) == []

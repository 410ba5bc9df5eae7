"""What users install: sdist and wheel, built as for a release from a clean copy of the tree."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from trustfold import __version__
from trustfold.errors import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["setuptools"]["packages"]
BUILDER = runpy.run_path(str(ROOT / "ops" / "build_dist.py"))
"""The script behind `make dist`."""

TOP_FOLDERS = sorted({package.split(".")[1] for package in PACKAGES if "." in package})


def shipped_files() -> set[str]:
    """Every file that a user should find below `trustfold/`: root modules, `py.typed`, code folders."""
    below = (path for top in TOP_FOLDERS for path in (ROOT / top).rglob("*") if path.is_file())
    files = [*ROOT.glob("*.py"), ROOT / "py.typed", *below]
    return {f"trustfold/{path.relative_to(ROOT).as_posix()}" for path in files if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Sdist and wheel, built without a network and without the leftovers of earlier builds."""
    home = tmp_path_factory.mktemp("dist")
    source = home / "source"
    ignore = shutil.ignore_patterns(
        ".git", ".venv", ".*_cache", ".hypothesis", "build", "dist", "__pycache__", "node_modules", "*.egg-info"
    )
    shutil.copytree(ROOT, source, ignore=ignore)
    built: tuple[Path, Path] = BUILDER["build"](source, home)
    return built


@pytest.fixture(scope="module")
def wheel(dist: tuple[Path, Path]) -> Path:
    """The wheel."""
    return dist[1]


@pytest.fixture(scope="module")
def description(wheel: Path) -> str:
    """README as the package index shows it."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode().partition("\n\n")[2]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel installs, and none of the sources."""
    target = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def run_installed(installed: Path, *arguments: str) -> str:
    """Run the unpacked wheel as `python -m trustfold`, away from the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "trustfold", *arguments],
        cwd=installed.parent,
        env={**os.environ, "PYTHONPATH": str(installed), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Every file of the code folders ships, data included; no test, script or document does."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    ours = {name for name in names if ".dist-info/" not in name}
    assert ours == shipped_files()


def test_sdist_holds_what_a_packager_needs(dist: tuple[Path, Path]) -> None:
    """Every file of the repository that git follows, tests and documents included."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    followed = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    with tarfile.open(dist[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert followed - names == set()


def test_the_index_shows_pages_and_pictures(description: str) -> None:
    """README there has absolute links alone; each names a file of this repository at the version's tag."""
    project = PROJECT["project"]
    led = re.findall(r"\]\(([^)\s]+)\)", description)
    ours = [link for link in led if link.startswith(project["urls"]["Source"])]
    assert [link for link in led if not link.startswith("https://")] == []
    assert len(ours) > 10
    for link in ours:
        kind, tag, path = link.removeprefix(f"{project['urls']['Source']}/").split("/", 2)
        assert (kind, tag) == ("raw" if path.endswith((".png", ".svg")) else "blob", f"v{__version__}")
        assert (ROOT / path.partition("#")[0]).exists(), link


def test_pages_of_the_project_exist() -> None:
    """Links of the metadata that name a file name one of this repository."""
    urls = PROJECT["project"]["urls"]
    paths = [url.partition("/blob/main/")[2] for url in urls.values() if "/blob/" in url]
    assert len(paths) >= 3
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_wheel_carries_types_and_licence(wheel: Path) -> None:
    """Type checkers see the annotations, and the licence travels along."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    assert "trustfold/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "\nLicense-Expression: Apache-2.0\n" in metadata


def test_base_install_is_small(wheel: Path) -> None:
    """Without an extra, six libraries are needed; Kafka, DuckDB and servers are a choice."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))).decode()
    base = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata, flags=re.MULTILINE)
    assert sorted(base) == ["ahocorasick-rs", "click", "msgspec", "orjson", "rapidfuzz", "rich", "urllib3"]


def test_wheel_runs_without_the_sources(installed: Path) -> None:
    """The unpacked wheel is what gets imported, and it answers for its version."""
    where = "import trustfold; print(trustfold.__file__, trustfold.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", where],
        cwd=installed.parent,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    file, version = done.stdout.split()
    assert Path(file) == installed / "trustfold" / "__init__.py"
    assert version in run_installed(installed, "--version")


FIRST_COMMANDS = {
    "": ("demo", "replay --json run.ndjson", "schemas export out"),
    "history": ("record run.ndjson", "history now", "report", "sql 'FROM failure_signatures()'"),
    "web": ("connect codex", "status", "connect codex --remove", "uninstall --yes"),
    "kafka": ("worker --help", "topics create --bootstrap 127.0.0.1:1", "dead-letters list --bootstrap 127.0.0.1:1"),
    "mcp": ("mcp-proxy --server http://127.0.0.1:1/mcp",),
}
"""Commands that the pages name first for who installs `trustfold[EXTRA]`, in their order."""

BLOCKER = """
import sys
from importlib.machinery import PathFinder
others = set({others!r})
class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in others else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""
"""Makes a Python miss the modules of other distributions."""


def modules_beside(extra: str, installed: Path) -> set[str]:
    """Top-level modules installed here that `pip install trustfold[extra]` does not bring."""
    (ours,) = metadata.distributions(path=[str(installed)])
    waiting, seen = [Requirement(f"trustfold[{extra}]" if extra else "trustfold")], set[str]()
    while waiting:
        wanted = waiting.pop()
        try:
            lines = (ours.requires if wanted.name == "trustfold" else metadata.requires(wanted.name)) or []
        except metadata.PackageNotFoundError:
            continue
        for line in lines:
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": one}) for one in (wanted.extras or {""})):
                key = str(needed)
                waiting += [needed] if key not in seen else []
                seen.add(key)
    names = {canonicalize_name(Requirement(one).name) for one in seen} | {"trustfold"}
    return {
        module
        for module, owners in metadata.packages_distributions().items()
        if not names & {canonicalize_name(owner) for owner in owners}
    }


@pytest.mark.parametrize("extra", FIRST_COMMANDS)
def test_extra_brings_what_its_first_commands_need(extra: str, installed: Path, tmp_path: Path) -> None:
    """The wheel with one extra alone, as a newcomer has it: no command asks for another library."""
    blocker = tmp_path / "blocker"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(BLOCKER.format(others=sorted(modules_beside(extra, installed))))
    home = tmp_path / "home"
    home.mkdir()
    (home / "run.ndjson").write_text(run_installed(installed, "demo", "--events"))
    places = {
        "HOME": str(home),
        "XDG_DATA_HOME": "",
        "CODEX_HOME": "",
        "PYTHONPATH": f"{blocker}{os.pathsep}{installed}",
    }
    for command in FIRST_COMMANDS[extra]:
        done = subprocess.run(
            [sys.executable, "-m", "trustfold", *shlex.split(command)],
            cwd=home,
            env={**os.environ, "NO_COLOR": "1", **places},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert "not installed" not in done.stderr, f"{command}: {done.stderr}"
        assert "No module named" not in done.stderr, f"{command}: {done.stderr}"
        assert "Traceback" not in done.stderr, f"{command}: {done.stderr}"
        assert done.returncode == 0 or "127.0.0.1:1" in command, f"{command}: {done.returncode} {done.stderr}"


def test_every_module_of_an_extra_names_it() -> None:
    """An import error says which extra brings the module."""
    (whole,) = PROJECT["project"]["optional-dependencies"]["all"]
    assert set(EXTRAS.values()) == Requirement(whole).extras


def test_wheel_brings_its_demo(installed: Path) -> None:
    """`trustfold demo` finds its recorded runs in the wheel, not in the checkout."""
    assert run_installed(installed, "demo")

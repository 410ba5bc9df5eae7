"""docs/install.md: every way to install and every extra, from this tree, each in an empty home.

There is no network: uv takes the pinned packages from its cache, where `make install` has put them.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from trustfold import __version__
from trustfold.cli.service import UserService

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = PROJECT["urls"]["Source"]
PAGE = (ROOT / "docs" / "install.md").read_text()
PROGRAMS = Path(sys.executable).parent
CLONED = next(re.finditer(r"```text\n(git clone .*?)```", PAGE, re.DOTALL))[1].splitlines()
PLACES = dict(re.findall(r"^\| ([^|]+) \| `('[^`]+')`", PAGE, re.MULTILINE))
TRIED = re.findall(r"`(uvx [^`]+)`", PAGE)
EXTRAS = [
    name for row in re.findall(r"^\| (`[^|]+`) \|", PAGE, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", row)
]

FIRST_COMMANDS = {
    "": ("trustfold demo --events > run.ndjson", "trustfold replay --json run.ndjson", "trustfold schemas export out"),
    "web": ("trustfold connect codex", "trustfold status", "trustfold uninstall --yes"),
    "history": (
        "trustfold demo --events > run.ndjson",
        "trustfold record run.ndjson",
        "trustfold history now",
        "trustfold report",
        "trustfold sql 'FROM failure_signatures()'",
    ),
    "kafka": (
        "trustfold worker --help",
        *(
            f"trustfold {words} --bootstrap 127.0.0.1:1"
            for words in ("topics create", "status", "lag", "doctor", "dead-letters list")
        ),
    ),
    "rocksdb": ("python -c 'import rocksdict'",),
    "mcp": ("trustfold mcp-proxy --server http://127.0.0.1:1/mcp",),
    "metrics": ("python -c 'from prometheus_client import REGISTRY; from trustfold.guard import ToolGuard'",),
    "otel": ("python -c 'from trustfold.guard.otel.processor import GuardSpanProcessor'",),
    "redis": ("python -c 'from trustfold.guard import RedisDedupeStore'",),
}
"""What the pages name first for who installs `trustfold[EXTRA]`; nothing listens at 127.0.0.1:1."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkout(dist: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose last commit is this tree, with `dist` as `make dist` leaves it."""
    folder = tmp_path_factory.mktemp("clone") / "trustfold"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for words in ("init --quiet", "add --all", "-c user.name=n -c user.email=e commit --quiet --message=all"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
    (folder / "dist").mkdir()
    for file in dist:
        shutil.copy(file, folder / "dist")
    return folder


class Newcomer:
    """A person with an empty home, who types commands and has uv, pipx and Python on the path."""

    def __init__(self, folder: Path, checkout: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.checkout = checkout
        lock = str(ROOT / "requirements.lock")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRUSTFOLD_", "XDG_"))}
        cache = subprocess.run([PROGRAMS / "uv", "cache", "dir"], capture_output=True, text=True, check=True).stdout
        self.names = kept | {
            "HOME": str(self.home),
            "CODEX_HOME": "",
            "NO_COLOR": "1",
            "PATH": f"{self.home}/.local/bin{os.pathsep}{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "PIPX_DEFAULT_BACKEND": "uv",
            "PIP_NO_INDEX": "1",
            "UV_OFFLINE": "1",
            "UV_CACHE_DIR": cache.strip(),
            "UV_CONSTRAINT": lock,
            "UV_BUILD_CONSTRAINT": lock,
            "UV_FIND_LINKS": str(checkout / "dist"),
            "UV_PYTHON": sys.executable,
            "UV_NO_PROGRESS": "1",
        }

    def types(self, line: str, folder: Path | None = None) -> str:
        """Run a line of a shell; returns both of its outputs."""
        done = self.ended(line, folder)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def ended(self, line: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a line of a shell to whatever end; the repository's address is that of the checkout."""
        return subprocess.run(
            ["sh", "-c", line.replace(REPOSITORY, self.checkout.as_uri())],
            cwd=folder or self.home, env=self.names, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip


@pytest.fixture
def newcomer(tmp_path: Path, checkout: Path) -> Iterator[Newcomer]:
    """A newcomer; the server that they started ends with the test."""
    person = Newcomer(tmp_path, checkout)
    yield person
    UserService(person.names | {"XDG_DATA_HOME": str(person.home / ".local" / "share")}).stop()


def test_from_the_clone_to_nothing(newcomer: Newcomer) -> None:
    """The first lines of the page, an agent connected, and everything removed again."""
    clone, enter, install = CLONED
    newcomer.types(clone)
    newcomer.types(install, newcomer.home / enter.removeprefix("cd "))
    shutil.rmtree(newcomer.home / "trustfold")
    newcomer.types("trustfold demo")
    newcomer.types("trustfold connect codex")
    assert (newcomer.home / ".codex" / "hooks.json").exists()
    told = newcomer.types("trustfold uninstall --yes")
    assert "`uv tool uninstall trustfold` removes the program" in told
    newcomer.types("uv tool uninstall trustfold")
    assert [path for path in newcomer.home.rglob("*") if {"trustfold", ".codex"} & {path.name}] == []


@pytest.mark.parametrize("place", PLACES)
def test_every_place_can_be_installed_from(place: str, newcomer: Newcomer) -> None:
    """What the table gives for what somebody has, in the place of the first lines' own."""
    newcomer.types(f"uv tool install {PLACES[place]}", newcomer.checkout)
    assert newcomer.types("trustfold --version") == f"trustfold {__version__}\n"


@pytest.mark.parametrize("line", TRIED)
def test_it_can_be_tried_without_installing(line: str, newcomer: Newcomer) -> None:
    """Nothing is on the path afterwards."""
    assert "escalated" in newcomer.types(line)
    assert not (newcomer.home / ".local" / "bin").exists()


def test_pipx_installs_it_too(newcomer: Newcomer) -> None:
    """In place of `uv tool`."""
    newcomer.types("pipx install '.[web]'", newcomer.checkout)
    newcomer.types("trustfold connect codex")
    assert "`pipx uninstall trustfold` removes the program" in newcomer.types("trustfold uninstall --yes")
    newcomer.types("pipx uninstall trustfold")
    assert [path for path in newcomer.home.rglob("*") if path.name == "trustfold"] == []


def test_pip_installs_it_too(newcomer: Newcomer) -> None:
    """In place of `uv tool`, in a virtual environment; what it would take from the index is there already."""
    newcomer.types("python -m venv env")
    newcomer.names["PATH"] = f"{newcomer.home}/env/bin{os.pathsep}{newcomer.names['PATH']}"
    newcomer.types(f"uv pip install --quiet --python env/bin/python {PLACES['a released version']}")
    newcomer.types("uv pip uninstall --quiet --python env/bin/python trustfold")
    wheel = next(place for what, place in PLACES.items() if what.startswith("a wheel"))
    newcomer.types(f"pip install {wheel}", newcomer.checkout)
    assert newcomer.types("trustfold --version") == f"trustfold {__version__}\n"
    newcomer.types("pip uninstall --yes trustfold")
    assert not (newcomer.home / "env" / "bin" / "trustfold").exists()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment for all extras, one after the other."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([PROGRAMS / "uv", "venv", "--quiet", "--python", sys.executable, folder], check=True)
    return folder


def test_the_page_has_every_extra() -> None:
    """The table names what pyproject.toml offers, and no command is tried that it does not name."""
    assert set(EXTRAS) == set(PROJECT["optional-dependencies"])
    assert set(FIRST_COMMANDS) <= {"", *EXTRAS}


@pytest.mark.parametrize("extra", FIRST_COMMANDS)
def test_an_extra_brings_what_its_first_commands_need(
    extra: str, environment: Path, dist: tuple[Path, Path], newcomer: Newcomer
) -> None:
    """One extra alone: no command asks for another library."""
    newcomer.names["PATH"] = f"{environment / 'bin'}{os.pathsep}{newcomer.names['PATH']}"
    package = shlex.quote(f"trustfold[{extra}] @ {dist[1].as_uri()}" if extra else f"trustfold @ {dist[1].as_uri()}")
    newcomer.types(f"uv pip install --quiet --exact --python {environment} {package}")
    for command in FIRST_COMMANDS[extra]:
        done = newcomer.ended(command)
        for fault in ("not installed", "No module named", "Traceback"):
            assert fault not in done.stderr, f"{command}: {done.stderr}"
        assert done.returncode == 0 or "127.0.0.1:1" in command, f"{command}: {done.returncode} {done.stderr}"

"""The Makefile lists what it can do, and what it names exists."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = sorted(set(re.findall(r"^\.PHONY: ([a-z-]+)$", MAKEFILE, flags=re.MULTILINE)))


def make(*arguments: str) -> str:
    """Run make in the checkout and give back what it printed."""
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_is_the_default_and_lists_every_target() -> None:
    """Plain `make` explains itself, and no target is left out."""
    listed = re.findall(r"^  ([a-z-]+) +\S", make(), flags=re.MULTILINE)
    assert sorted(listed) == TARGETS
    assert make() == make("help")


def test_the_expected_targets_exist() -> None:
    """What README and continuous integration call by name is there."""
    expected = {
        "install",
        "test",
        "check",
        "demo",
        "bench",
        "up",
        "kafka",
        "schemas",
        "docs",
        "clean",
        "help",
    }
    assert expected <= set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_targets_can_be_planned(target: str) -> None:
    """Make can say what it would do for each target."""
    make("--dry-run", target)


def test_scripts_named_in_the_makefile_exist() -> None:
    """No target starts a file that is not in the repository."""
    named = re.findall(r"(?:python|pytest) ((?:ops|tests)/\S+)", MAKEFILE)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_ci_runs_targets_that_exist() -> None:
    """`.ci/run` calls only targets of the Makefile, the tests and the demo among them."""
    script = (ROOT / ".ci" / "run").read_text()
    called = set()
    for words in re.findall(r"^(?:begin \S+ )?make((?: [a-z]+)+)", script, flags=re.MULTILINE):
        called |= set(words.split())
    for words in re.findall(r"make -C \S+((?: [a-z]+)+)", script):
        called |= set(words.split())
    assert {"test", "demo", "lint", "typecheck", "imports", "generated"} <= called <= set(TARGETS)

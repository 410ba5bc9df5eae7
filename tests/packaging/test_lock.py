"""requirements.lock pins what pyproject.toml asks for with hashes; the hooks of pre-commit use the pinned ruff."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, GROUPS = PYPROJECT["project"], PYPROJECT["dependency-groups"]
EXTRAS = PROJECT["optional-dependencies"]
LOCK = (ROOT / "requirements.lock").read_text()
PIN = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[\w.+-]+)(?: ; .*?)?"
    r"(?P<hashes>(?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n(?P<via>(?:    #.*\n)*)",
    flags=re.MULTILINE,
)
PINS = list(PIN.finditer(LOCK))


def required() -> list[Requirement]:
    """What the base, the extra `all` and the groups ask for."""
    waiting = [*PROJECT["dependencies"], *EXTRAS["all"], *GROUPS["dev"], *GROUPS["docs"]]
    found = []
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name == "trustfold":
            waiting += [line for extra in sorted(requirement.extras) for line in EXTRAS[extra]]
        else:
            found.append(requirement)
    return found


@pytest.mark.parametrize("requirement", sorted(required(), key=str), ids=str)
def test_every_requirement_is_pinned_within_its_bounds(requirement: Requirement) -> None:
    """A requirement that was added or raised without `make lock` is named here."""
    versions = [pin["version"] for pin in PINS if pin["name"] == canonicalize_name(requirement.name)]
    assert versions, "not in requirements.lock: run `make lock`"
    assert all(requirement.specifier.contains(version, prereleases=True) for version in versions), versions


def test_nothing_is_pinned_that_is_asked_for_no_more() -> None:
    """A requirement that was removed without `make lock` is named here."""
    direct = {pin["name"] for pin in PINS if "trustfold (pyproject.toml" in pin["via"]}
    assert direct == {canonicalize_name(requirement.name) for requirement in required()}


def test_every_pin_has_hashes() -> None:
    """No line of the file names a package without what its files must be, uv included, which installs the others."""
    named = re.findall(r"^([\w.-]+)\b.*$", re.sub(r"^(#| ).*\n", "", LOCK, flags=re.MULTILINE), flags=re.MULTILINE)
    assert named == [pin["name"] for pin in PINS]
    assert "uv" in named


def test_hooks_use_the_pinned_ruff() -> None:
    """The same code is well formatted for a commit hook and for `make lint`."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    named = {line for hook in hooks for line in hook.get("additional_dependencies", ())}
    assert named == {f"ruff=={pin['version']}" for pin in PINS if pin["name"] == "ruff"}

"""Runs the checks of the adapters, each against its framework from the registry, in an environment of its own.

    python tests/agents/frameworks [FRAMEWORK...] [-- ARGUMENTS OF PYTEST]

The environments are kept in the user's cache folder. A framework that cannot be installed here is skipped with the
reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trustfold-frameworks"
TOOLS = ("pytest>=9", "pytest-timeout>=2.4")


def install(extra: str, project: dict[str, object]) -> tuple[Path, str]:
    """Make the environment of one framework; returns its Python, and why there is none."""
    place = CACHE / extra
    python = place / "bin" / "python"
    wanted = [*project["dependencies"], *project["optional-dependencies"][extra], *TOOLS]  # type: ignore[index, misc]
    done = place / "requirements.txt"
    if done.exists() and done.read_text().split("\n") == wanted:
        return python, ""
    venv.create(place, with_pip=True)
    words = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *wanted]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode:
        return python, made.stderr.strip()[-300:]
    done.write_text("\n".join(wanted))
    return python, ""


def check(extra: str, python: Path, arguments: list[str]) -> int:
    """Run the checks of one framework."""
    paths = CACHE / "paths"
    paths.mkdir(parents=True, exist_ok=True)
    package = paths / "trustfold"
    package.unlink(missing_ok=True)
    package.symlink_to(ROOT, target_is_directory=True)
    module = f"check_{extra.replace('-', '_')}.py"
    words = [python, "-m", "pytest", "-q", "-c", "pytest.ini", "--noconftest", "-p", "no:cacheprovider", module]
    environ = os.environ | {"PYTHONPATH": str(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([*words, *arguments], cwd=HERE, env=environ, check=False).returncode


def main() -> int:
    """Check the named frameworks, or all; 1 if one is not as it should be."""
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [path.stem.removeprefix("check_").replace("_", "-") for path in sorted(HERE.glob("check_*.py"))]
    if unknown := sorted(set(words[:split]) - set(extras)):
        print(f"no checks of {unknown[0]}; there are {', '.join(extras)}", file=sys.stderr)
        return 2
    wrong = 0
    for extra in words[:split] or extras:
        python, reason = install(extra, project)
        print(f"--- {extra}" + (f": skipped, {reason}" if reason else ""), flush=True)
        if not reason:
            wrong += check(extra, python, words[split + 1 :]) != 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

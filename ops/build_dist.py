"""Builds what is released: the sdist of the last commit, and the wheel of that sdist.

`make dist` runs it. The links of README.md become absolute: a package index shows the page without the repository.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(!?)(\[[^\]]*\])\(([^)\s]+)\)")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def absolute(page: str, repository: str, tag: str) -> str:
    """Return a page of the root whose relative links lead into a repository on a code host, at a tag."""

    def led(link: re.Match[str]) -> str:
        image, text, target = link.groups()
        if re.match(r"[a-z]+:|#", target):
            return link[0]
        return f"{image}{text}({repository}/{'raw' if image else 'blob'}/{tag}/{target})"

    return LINK.sub(led, page)


def build(source: Path, target: Path) -> tuple[Path, Path]:
    """Build the sdist of a clean source tree and the wheel of that sdist into a folder; changes README.md of the tree.

    Raises:
        CalledProcessError: setuptools refused; its message stands on standard error.
    """
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    (version,) = re.findall(r'^__version__ = "(.*)"$', (source / "__init__.py").read_text(), flags=re.MULTILINE)
    readme = source / "README.md"
    readme.write_text(absolute(readme.read_text(), project["urls"]["Source"], f"v{version}"))
    sdist = _built("build_sdist", source, target)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-xf", sdist.resolve()], cwd=folder, check=True)
        (unpacked,) = Path(folder).iterdir()
        return sdist, _built("build_wheel", unpacked, target)


def _built(hook: str, source: Path, target: Path) -> Path:
    """Run one hook of the build backend in a source tree (PEP 517)."""
    made = subprocess.run(
        [sys.executable, "-c", BUILD, hook, str(target.resolve())],
        cwd=source,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return target / made.stdout.splitlines()[-1]


def main(target: Path) -> None:
    """Build the last commit of this repository."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        exported = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x"], cwd=folder, input=exported, check=True)
        for made in build(Path(folder), target):
            print(made)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

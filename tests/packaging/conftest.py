"""The files of a release, built once for the tests of this folder that run in one process."""

import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Sdist and wheel, built without a network and without the leftovers of earlier builds."""
    home = tmp_path_factory.mktemp("dist")
    source = home / "source"
    ignore = shutil.ignore_patterns(
        ".git", ".venv", ".*_cache", ".hypothesis", "build", "dist", "__pycache__", "node_modules", "*.egg-info"
    )
    shutil.copytree(ROOT, source, ignore=ignore)
    built: tuple[Path, Path] = runpy.run_path(str(ROOT / "ops" / "build_dist.py"))["build"](source, home)
    return built

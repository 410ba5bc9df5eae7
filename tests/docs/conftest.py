"""Fixture of the tests of documents: the machine of a person who has just installed trustfold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trustfold.cli.service import UserService


@pytest.fixture
def home(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a person with an empty home, in which `trustfold` and `python` are on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("trustfold", "-m trustfold "), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
        program.chmod(0o755)
    (tmp_path / "home").mkdir()
    names = {"HOME": str(tmp_path / "home"), "XDG_DATA_HOME": "", "XDG_RUNTIME_DIR": "", "CLAUDE_CONFIG_DIR": ""}
    names["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    yield names
    UserService(names | {"XDG_DATA_HOME": str(tmp_path / "home" / ".local" / "share")}).stop()

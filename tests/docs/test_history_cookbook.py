"""The cookbook's queries run over a known history and answer what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from command_line import trustfold
from recorded import record, replayed, small_event
from two_days import two_days

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "history.md"
RECIPE = re.compile(r"```sql\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
EXAMPLE = re.compile(r"```sh\n(trustfold whatif [^\n]*)\n```\n\n```text\n(.*?)```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
WRITE = "TRUSTFOLD_WRITE_COOKBOOK"
"""Set it to write the answers into the page instead of comparing them."""


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The history of the cookbook."""
    folder = tmp_path_factory.mktemp("cookbook")
    records = list(two_days())
    nudge = next(output for output in replayed(records) if output.type == "nudge.issued")
    last = orjson.loads(records[-1][1])["time"]
    judged = {"type": "feedback.false_alarm", "output_id": nudge.id, "reason": "it was waiting", "time": last}
    record(folder / "history", [*records, ("events", small_event(0, **judged))], live=True)
    return folder


def answer(folder: Path, *arguments: str) -> str:
    """What a command prints, without blanks at the ends of lines."""
    done = trustfold(*arguments, "--history", "history", cwd=folder, env={"COLUMNS": "118"})
    assert done.returncode == 0, done.stderr
    lines = [line.rstrip() for line in done.stdout.decode().splitlines()]
    return "\n".join(line.removeprefix(" ") for line in lines if line.strip(" ─")) + "\n"


@pytest.mark.slow
def test_every_recipe_answers_what_the_page_shows(history: Path) -> None:
    """Every question, word for word."""
    text = PAGE.read_text()
    recipes = RECIPE.findall(text)
    assert len(recipes) == 13
    answers = [(query, shown, answer(history, "sql", query)) for query, shown in recipes]
    if os.environ.get(WRITE):
        for query, shown, made in answers:
            text = text.replace(
                f"```sql\n{query}```\n\n```text\n{shown}```", f"```sql\n{query}```\n\n```text\n{made}```"
            )
        PAGE.write_text(text)
        return
    for query, shown, made in answers:
        assert made == shown, query


@pytest.mark.slow
def test_the_examples_of_whatif_show_what_it_prints(history: Path) -> None:
    """Word for word."""
    (history / "other.toml").write_text("[trust.default_rule]\ncount_threshold = 5\n")
    text = PAGE.read_text()
    examples = EXAMPLE.findall(text)
    assert len(examples) == 1
    for command, shown in examples:
        made = answer(history, *shlex.split(command)[1:])
        if os.environ.get(WRITE):
            text = text.replace(f"{command}\n```\n\n```text\n{shown}```", f"{command}\n```\n\n```text\n{made}```")
            PAGE.write_text(text)
        else:
            assert made == shown, command


@pytest.fixture(scope="module")
def saved(history: Path) -> Path:
    """A directory with that history in the default place and a saved catalogue."""
    (history / ".trustfold").mkdir()
    (history / ".trustfold" / "history").symlink_to(history / "history")
    assert trustfold("sql", "--save", "catalogue.duckdb", cwd=history).returncode == 0
    return history


def test_every_snippet_of_python_runs(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other; what they leave are frames of the library that the page names, with all rows."""
    for package in ("pandas", "pyarrow", "polars"):
        pytest.importorskip(package)
    monkeypatch.chdir(saved)
    left: dict[str, Any] = {}
    expected = {"tools": ("pandas", 4), "worse": ("pandas", 0), "calls": ("polars", 4), "finished": ("pyarrow", 1018)}
    for snippet, (name, frame) in zip(PYTHON.findall(PAGE.read_text()), expected.items(), strict=True):
        exec(snippet, left)
        assert (type(left[name]).__module__.partition(".")[0], len(left[name])) == frame


def test_the_catalogue_serves_sqlalchemy(saved: Path) -> None:
    """As Superset opens it: views are tables, read-only."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("duckdb_engine")
    engine = sqlalchemy.create_engine(f"duckdb:///{saved}/catalogue.duckdb", connect_args={"read_only": True})
    with engine.connect() as connection:
        found = connection.execute(sqlalchemy.text("SELECT count(*) FROM tool_health(min_calls := 20)")).fetchall()
    assert [tuple(row) for row in found] == [(4,)]
    assert "tool_calls" in sqlalchemy.inspect(engine).get_view_names()
    engine.dispose()


def test_the_notebook_runs(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell, in a kernel of its own."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("TRUSTFOLD_HISTORY", str(history / "history"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    notebook = nbformat.read(ROOT / "docs" / "history.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    printed = "".join(
        output.get("text", "")
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if cell.cell_type == "code"
    )
    assert "failure_rate" in printed
    assert any(
        output.get("data", {}).get("image/svg+xml") for cell in notebook.cells for output in cell.get("outputs", ())
    )

"""`trustfold behavior`, `patterns` and `stalls`: profiles of models as tables and as JSON."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import trustfold
from rich.console import Console, RenderableType
from story import Story
from trustfold.cli.behavior import (
    PatternCount,
    comparison,
    pattern_counts,
    patterns_table,
    profiles_table,
    stalls_table,
)
from trustfold.rules.rules import RuleSet
from trustfold.schemas.public_state import ModelUpdated
from trustfold.streams.embedded.engine import EmbeddedEngine


def profile(model: str, turns: int, stalled: int, **fields: Any) -> ModelUpdated:
    """A public profile."""
    own = {"turns": turns, "stalled_turns": stalled, "stall_rate": stalled / turns if turns else None}
    envelope = {"schema_version": "1.0", "id": "s1", "time": "2026-03-02T12:00:00.000Z", "kind": "model", "key": model}
    return msgspec.convert(envelope | own | fields, ModelUpdated)


def shown(what: RenderableType, *, colour: bool = False) -> str:
    """What a person sees."""
    out = StringIO()
    Console(file=out, width=100, no_color=not colour, force_terminal=colour, highlight=False).print(what)
    return out.getvalue()


def cells(what: RenderableType) -> list[list[str]]:
    """The cells of a table, row by row."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in shown(what).splitlines()]


LARGE = profile(
    "large-1",
    40,
    4,
    nudges_sent=6,
    nudges_effective=5,
    nudge_effectiveness=5 / 6,
    most_common_pattern="error_retry_loop",
    pattern_counts={"error_retry_loop": 3, "monologue": 1},
    false_alarms={"error_retry_loop": 1},
)
SMALL = profile("small-1", 10, 5, nudges_sent=0, nudges_effective=0, pattern_counts={"error_retry_loop": 5})


def test_each_model_is_a_row() -> None:
    """Shares are percentages; what cannot be said yet is a dash."""
    rows = cells(profiles_table([LARGE, SMALL]))
    assert ["large-1", "40", "4", "10%", "6", "83%", "error retry loop"] in rows
    assert ["small-1", "10", "5", "50%", "0", "-"] in rows


def test_two_models_stand_side_by_side_and_the_better_is_set_off() -> None:
    """Fewer stalls are better, more help is better; a number that only one has is no contest."""
    rows = cells(comparison(LARGE, SMALL))
    assert ["Stall rate", "10%", "50%"] in rows
    assert ["Nudges that helped", "83%", "-"] in rows
    assert ["monologue", "1", "0"] in rows
    coloured = shown(comparison(LARGE, SMALL), colour=True)
    assert re.findall(r"\x1b\[32m\s*(\d+)%", coloured) == ["10"]


def test_patterns_are_counted_over_models_most_frequent_first() -> None:
    """In all, by model, and what was called wrong; of one model, its own."""
    counts = pattern_counts([LARGE, SMALL])
    assert list(counts) == ["error_retry_loop", "monologue"]
    assert counts["error_retry_loop"] == PatternCount(8, {"large-1": 3, "small-1": 5}, false_alarms=1)
    rows = cells(patterns_table(counts, None))
    assert ["error retry loop", "8", "1", "large-1 3, small-1 5"] in rows
    assert ["monologue", "1", "-"] in cells(patterns_table(pattern_counts([LARGE]), "large-1"))
    assert "no patterns of some-model were detected" in shown(patterns_table({}, "some-model"))


def test_stalls_have_a_total() -> None:
    """All models together, after each by itself."""
    table = shown(stalls_table([SMALL, LARGE]))
    assert "9 of 50 turns stalled (18%)" in table
    assert "0 of 0 turns stalled (-)" in shown(stalls_table([profile("new", 0, 0)]))


@pytest.mark.parametrize("view", [profiles_table, stalls_table])
def test_without_a_profile_it_says_how_to_get_one(view: Any) -> None:
    """No empty table."""
    words = " ".join(shown(view([])).split())
    assert "events that name their `model`" in words
    assert "`turn.started` and `turn.ended`" in words


def test_without_turns_it_says_why_rates_are_missing() -> None:
    """A platform that publishes calls and no turns learns what its profiles lack."""
    assert "`turn.started` and `turn.ended`" in " ".join(shown(profiles_table([profile("a", 0, 0)])).split())
    assert "turn.started" not in shown(profiles_table([profile("a", 0, 0), profile("b", 1, 0)]))


def test_markup_in_names_is_only_text() -> None:
    """A model called `[red]` neither colours the tables nor breaks them."""
    odd = profile("[red]x[/]", 2, 1, pattern_counts={"monologue": 1})
    for view in (profiles_table([odd]), comparison(odd, odd), stalls_table([odd])):
        assert "[red]x[/]" in shown(view)
    assert "[red]x[/]" in shown(patterns_table(pattern_counts([odd]), None))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store in which one model works and another one reads the same file again and again."""
    path = tmp_path / "store.sqlite"
    story = Story(model="large-1").turn().turn()
    story.model = "small-1"
    story.event("turn.started")
    story.works("read_file", {"path": "/a"}, result="same", times=3)
    story.event("turn.ended")
    with EmbeddedEngine.open(path, RuleSet()) as engine:
        engine.ingest([value for _, value in story.records])
    return path


@pytest.mark.slow
def test_a_store_is_read(store: Path, tmp_path: Path) -> None:
    """The three commands, as tables and as JSON; profiles do not disturb `status`."""

    def document(*words: str) -> Any:
        return json.loads(trustfold(*words, "--store", store, "--json", cwd=tmp_path).stdout)

    assert [(one["key"], one["turns"]) for one in document("behavior")["models"]] == [("large-1", 2), ("small-1", 1)]
    assert document("stalls")["models"][0] == {
        "model": "small-1",
        "turns": 1,
        "stalled_turns": 1,
        "stall_rate": 1.0,
        "most_common_pattern": "repetitive_calls",
    }
    assert document("patterns")["patterns"]["repetitive_calls"]["models"] == {"small-1": 1}
    assert document("patterns", "--model", "large-1")["patterns"] == {}
    compared = document("behavior", "--compare", "large-1", "small-1")
    assert [one["key"] for one in compared["models"]] == ["large-1", "small-1"]
    assert compared["differences"]["stall_rate"] == -1.0
    assert compared["differences"]["nudge_effectiveness"] is None
    for words in (("behavior",), ("patterns",), ("stalls",), ("behavior", "--compare", "small-1", "large-1")):
        done = trustfold(*words, "--store", store, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"small-1" in done.stdout
    for words in (("status",), ("status", "large-1"), ("status", "--all")):
        assert trustfold(*words, "--store", store, cwd=tmp_path).returncode == 0


def test_an_unknown_model_is_explained(store: Path, tmp_path: Path) -> None:
    """The nearest name is offered; it is a mistake of usage."""
    done = trustfold("behavior", "--compare", "large-1", "smal-1", "--store", store, cwd=tmp_path)
    assert done.returncode == 2
    assert b"nothing is known of a model 'smal-1'; did you mean 'small-1'?" in done.stderr
    assert trustfold("patterns", "--model", "zz", "--store", store, cwd=tmp_path).returncode == 2

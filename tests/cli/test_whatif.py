"""The command `whatif`: what it shows, what it writes, what it refuses, and how it ends when it is interrupted."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result
from recorded import told
from story import Story
from trustfold.cli.main import main
from trustfold.config import load_rules
from trustfold.history.whatif import replay
from trustfold.rules.rules import BehaviourRules

MINOR = "behaviour.repetitive_calls.minor"
Run = Callable[..., Result]

PATIENT = "[behaviour.repetitive_calls]\nminor = 7\nmoderate = 8\nsevere = 9\n"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty healthy sessions of two calls, twenty with loops of 6 to 9."""
    root = tmp_path_factory.mktemp("h")
    story = Story()
    for number in range(40):
        times = 2 if number < 20 else 6 + number % 4
        story.moved(session=f"s-{number}").works("compute", {"q": number}, result="nothing", times=times)
    told(root, story)
    return root


@pytest.fixture
def run(history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command over this history, in a directory of its own with rules that see loops late."""
    monkeypatch.chdir(tmp_path)
    Path("patient.toml").write_text(PATIENT)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["whatif", "--history", str(history), "--against", "patient.toml", *arguments])

    return invoke


def test_search_writes_a_choice_that_whatif_and_config_read(run: Run) -> None:
    """It does not replace what is there, unless it is forced to; nobody else may read it."""
    asked = ("--search", "--grid", f"{MINOR}=3,4", "--write", "chosen.toml", "--hold-out", "0.5")
    done = run(*asked)
    assert done.exit_code == 0, done.output
    assert "its price: nothing counted here gets worse" in done.output
    assert "on those held out (" in done.output
    assert load_rules("chosen.toml").behaviour.repetitive_calls.minor == 3
    assert stat.S_IMODE(Path("chosen.toml").stat().st_mode) == 0o600
    assert CliRunner().invoke(main, ["config", "check", "chosen.toml"]).exit_code == 0
    text = Path("chosen.toml").read_text()
    assert "# From " in text
    assert "seed 0" in text
    assert "(Youden's J)" in text.replace("\n# ", " ")
    Path("chosen.toml").write_text("mine")
    refused = run(*asked)
    assert (refused.exit_code, Path("chosen.toml").read_text()) == (2, "mine")
    assert "--force to replace it" in refused.output
    assert "folding" not in refused.output, "refused before the work, not after it"
    assert run(*asked, "--force").exit_code == 0
    assert Path("chosen.toml").read_text() == text
    compared = orjson.loads(run("--rules", "chosen.toml", "--json", "--limit", "3").stdout)
    assert {one["how"] for one in compared["streaks"]} == {"caught"}
    assert (len(compared["streaks"]), compared["streaks_left_out"]) == (3, 17)
    assert sum(one["caught"] + one["earlier"] for one in compared["sessions"]) == 20


def test_nothing_better_and_too_little_data_write_nothing(run: Run, tmp_path: Path) -> None:
    """It is said, and the exit code says it to programs."""
    same = run("--search", "--grid", f"{MINOR}=7,9", "--write", "w.toml")
    assert same.exit_code == 1, same.output
    assert "nothing better was found" in same.output
    few = run("--search", "--grid", f"{MINOR}=3", "--session", "s-1", "--session", "s-30", "--write", "w.toml")
    assert few.exit_code == 1, few.output
    assert "1 healthy and 1 stuck sessions are too few to choose by" in few.output
    assert not (tmp_path / "w.toml").exists()


def test_one_document_tells_the_whole_search(run: Run) -> None:
    """Counts, intervals, weights, the split, and by what was judged."""
    told = orjson.loads(run("--search", "--grid", f"{MINOR}=2,3", "--weight-miss", "5", "--seed", "4", "--json").stdout)
    assert told["judged"] == {"healthy": 20, "stuck": 20, "left_out": 0, "sources": {"calls": 40}}
    assert (told["seed"], told["hold_out"]) == (4, 0.3)
    assert told["weights"] == {"false_alarm": 1.0, "miss": 5.0, "balanced": False}
    assert [one["alarmed"] for one in told["trials"]] == [20, 0, 0]
    assert [one["in_force"] for one in told["trials"]] == [False, False, True]
    assert (told["recommended"], told["against_in_force"]["held_out"]["verdict"]) == (1, "too few sessions")
    low, high = told["trials"][0]["false_alarms_95"]
    assert 0.8 < low < high == 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give either --rules FILE, or --search"),
        (("--search", "--rules", "patient.toml"), "give either --rules FILE, or --search"),
        (("--rules", "patient.toml", "--grid", "x=1"), "--grid only goes with --search"),
        (("--rules", "patient.toml", "--seed", "1", "--write", "w"), "--seed and --write only go with --search"),
        (("--search", "--examples", "2"), "--examples only goes with --rules"),
        (("--search", "--force"), "--force goes with --write"),
        (("--search", "--weight-miss", "0", "--weight-false-alarm", "0"), "not both 0"),
        (("--search", "--weight-miss", "nan"), "must be 0 or more"),
        (("--search", "--weight-miss", "-1"), "not in the range"),
        (("--search", "--hold-out", "1"), "not in the range"),
        (("--search", "--write", "w.json"), "name it .toml"),
        (("--search", "--write", "no/where.toml"), "directory that exists"),
        (("--search", "--html", "no/where.html"), "directory that exists"),
        (("--search", "--grid", f"{MINOR}=3", "--grid", "trust.default_rule.count_threshold=2"), "one after the other"),
        (("--search", "--grid", "guarantees.max_cost_usd=2"), "nothing here measures"),
        (("--search", "--grid", f"{MINOR}=99"), f"only the last {BehaviourRules().window_steps} steps"),
        (("--rules", "patient.toml", "--tool", "nobody"), "no recorded session passes: tool nobody"),
        (("--rules", "patient.toml", "--since", "2026-01-06", "--until", "2026-01-05"), "is not before --until"),
        (("--rules", "patient.toml", "--history", "elsewhere"), "replay them one by one"),
        (("--rules", "missing.toml"), "missing.toml: cannot be read"),
    ],
)
def test_what_contradicts_itself_is_refused_before_anything_is_folded(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    """With the reason, and exit code 2."""
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert words in done.output
    assert "folding" not in done.output


@pytest.mark.parametrize("arguments", [("--rules", "patient.toml"), ("--search", "--write", "w.toml")])
def test_an_interrupt_says_how_far_it_came(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """Exit code 130; nothing is written."""
    seen = 0

    def interrupted(self: Any, given: Any) -> list[Any]:
        nonlocal seen
        seen += 1
        if seen > 20:
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(replay.Replay, "feed", interrupted)
    done = run(*arguments)
    assert done.exit_code == 130
    assert "were folded; nothing is shown or written" in done.output
    assert not Path("w.toml").exists()

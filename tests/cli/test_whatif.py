"""The command `whatif`: what it shows, what it refuses, and how it ends when it is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result
from recorded import told
from story import Story
from trustfold.cli.main import main
from trustfold.history.whatif import rules_replay

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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing option '--rules'"),
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


def test_rules_that_see_loops_earlier_catch_them(run: Run) -> None:
    """One streak a session with a loop; the limit leaves out the others and counts them."""
    Path("early.toml").write_text(PATIENT.replace("minor = 7", "minor = 3"))
    compared = orjson.loads(run("--rules", "early.toml", "--json", "--limit", "3").stdout)
    assert {one["how"] for one in compared["streaks"]} <= {"caught", "earlier"}
    assert (len(compared["streaks"]), compared["streaks_left_out"]) == (3, 17)
    assert sum(one["caught"] + one["earlier"] for one in compared["sessions"]) == 20


def test_an_interrupt_says_how_far_it_came(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130; nothing is shown."""
    seen = 0

    def interrupted(self: Any, given: Any) -> list[Any]:
        nonlocal seen
        seen += 1
        if seen > 20:
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(rules_replay.RulesReplay, "feed", interrupted)
    done = run("--rules", "patient.toml")
    assert done.exit_code == 130
    assert "were folded; nothing is shown" in done.output

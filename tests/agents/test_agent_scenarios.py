"""The table of `docs/connect.md` and the scenarios of `make agents`: each tells what the other holds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from agent_scenarios import AGENTS, LIMITS, PAGE, SCENARIOS, Outcome, on_page, rows, table
from programs import PROGRAMS
from record import placed

TABLE = rows(on_page()[1])


def test_every_agent_has_a_row_for_every_scenario() -> None:
    """None is missing, none is left of a scenario that is no more, and the table is as the runner writes it."""
    assert TABLE.keys() == {(name, agent) for name in SCENARIOS for agent in AGENTS}
    assert table(TABLE) == on_page()[1]
    assert [program.name for program in PROGRAMS] == list(AGENTS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_row_is_as_it_must_be(name: str) -> None:
    """Or the page says what this agent does otherwise; what it does no longer is no limit."""
    for agent in AGENTS:
        faults, limit = SCENARIOS[name].faults(TABLE[name, agent]), LIMITS.get((name, agent), "")
        assert bool(faults) == bool(limit), f"{agent}: {faults or limit}"
        assert limit in " ".join(PAGE.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("agent", AGENTS)
def test_every_script_can_be_played(agent: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It makes calls, and no placeholder is left in them."""
    for scenario in SCENARIOS.values():
        steps = placed(scenario.steps(agent), tmp_path_factory.getbasetemp(), "trustfold")
        assert len(steps) > 1
        assert "@" not in str(steps).replace("--- a", "").replace("@@", "")


def test_an_outcome_that_must_not_be_is_a_fault() -> None:
    """Whoever must be told nothing, was told; who must be told a refusal, was not; no words at the end."""
    words = "the model's last words"
    assert SCENARIOS["healthy"].faults(Outcome("–", words, "–")) == []
    assert SCENARIOS["healthy"].faults(Outcome("2 nudges", words, "–")) == ["the model was told 2 nudges"]
    assert SCENARIOS["blocked"].faults(Outcome("–", "exit code 1", "launch blocked")) == [
        "the model was not told a refusal",
        "the person saw exit code 1",
    ]
    assert SCENARIOS["rejected"].faults(Outcome("1 nudge", words, "failure_streak, pause")) == ["pause was decided"]

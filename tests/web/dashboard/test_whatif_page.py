"""The what-if page: the rules that its numbers stand for, what it says without a history, and how it computes."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dashboard_kit import HERE, dashboard
from fixed_rules import Rules
from starlette.testclient import TestClient
from trustfold.errors import TrustfoldError
from trustfold.rules.rules import RuleSet as ShippedRules
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.server import make_app
from trustfold.web.dashboard.whatif import KEPT, TrialRunner, in_force, tried_rules
from trustfold.web.routes import more_routes


def test_numbers_replace_those_of_the_rules_in_force() -> None:
    """Each its own, all else stays; the later steps of a ladder keep their distance."""
    rules = ShippedRules()
    assert tried_rules(rules, {}) == rules
    tried = tried_rules(rules, {"ask": 1, "open": 2, "repeat": 5})
    assert in_force(tried) == {"ask": 1, "open": 2, "repeat": 5}
    was, ladder = rules.behaviour.repetitive_calls, tried.behaviour.repetitive_calls
    assert was.moderate is not None
    assert ladder.moderate == 5 + was.moderate - was.minor
    assert tried.breakers.recursive == rules.breakers.recursive
    assert in_force(rules)["ask"] == 3


def test_without_a_history_the_page_says_so(tmp_path: Path) -> None:
    """It offers the form with the numbers in force, and starts nothing."""
    with dashboard(tmp_path) as client:
        page = client.get("/history/whatif?ask=1")
    assert page.status_code == 200
    assert "nothing is recorded" in page.text.lower()
    assert 'name="repeat" min="1" max="1000"' in page.text


async def test_one_comparison_is_computed_for_all_who_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same question is computed once; one that failed is computed again; the oldest is forgotten."""
    trials, asked = TrialRunner(), list[str]()

    async def compute(rules: str, options: Any) -> dict[str, Any]:
        asked.append(rules)
        await asyncio.sleep(0)
        if options == ["fails"]:
            raise TrustfoldError("it failed")
        return {}

    monkeypatch.setattr(trials, "_compute", compute)
    rules = Rules()
    assert trials.of(rules, ["a"]).task is trials.of(rules, ["a"]).task
    for _ in range(2):
        with pytest.raises(TrustfoldError, match="it failed"):
            await trials.of(rules, ["fails"]).task
    for number in range(KEPT):
        await trials.of(rules, [str(number)]).task
    await trials.of(rules, ["a"]).task
    assert len(asked) == 1 + 2 + KEPT + 1


async def test_a_comparison_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    """The last line of the command."""
    with pytest.raises(TrustfoldError, match="no history there"):
        await TrialRunner().of(ShippedRules(), ["--history", str(tmp_path / "none")]).task


def test_numbers_that_no_rules_can_have_are_refused(tmp_path: Path) -> None:
    """With the words of the rules; no page breaks."""
    app = make_app(
        EmbeddedEngine.open(tmp_path / "s.sqlite", ShippedRules()), tmp_path / "s.sqlite",
        more=partial(more_routes, history=tmp_path / "none"),
    )  # fmt: skip
    with TestClient(app, base_url=HERE) as client:
        page = client.get("/history/whatif?repeat=90")
    assert page.status_code == 200
    assert "window_steps" in page.text

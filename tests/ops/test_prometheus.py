"""Alerts and recorded ratios: Prometheus reads them, they fire when they should, and ask for what is exposed."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from exposed_metrics import faults, grouped, promtool, samples, selected

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops" / "prometheus"
GROUPS = yaml.safe_load((OPS / "rules.yml").read_text())["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
OBJECTIVES = {"TrustfoldReadToolSlow", "TrustfoldCircuitReopens", "TrustfoldDedupeMisses", "TrustfoldCallsStuck"}
"""Those of service levels; the others watch workers and guards."""


def test_prometheus_reads_the_configuration() -> None:
    """The scrape configuration with its rule file."""
    assert "SUCCESS" in promtool("check", "config", OPS / "prometheus.yml")


def test_alerts_fire_when_they_should() -> None:
    """Prometheus evaluates the rules over series of an outage and of a quiet day."""
    assert "SUCCESS" in promtool("test", "rules", Path(__file__).with_name("rules.test.yml"))


def test_each_alert_is_tried() -> None:
    """Each has a case in which it fires, and the objectives are all there."""
    cases = yaml.safe_load(Path(__file__).with_name("rules.test.yml").read_text())["tests"]
    tried = {one["alertname"] for case in cases for one in case["alert_rule_test"] if one["exp_alerts"]}
    assert tried == set(ALERTS)
    assert set(ALERTS) >= OBJECTIVES


def test_rules_ask_for_what_is_exposed() -> None:
    """Each metric, label and value of a label exists in the exposition of guards or workers, or is recorded."""
    found = {rule.get("alert") or rule["record"]: faults(rule["expr"]) for rule in RULES}
    assert {name: said for name, said in found.items() if said} == {}
    assert all(next(selected(rule["expr"]), None) for rule in RULES)


def test_recorded_ratios_are_by_tool() -> None:
    """Their only label, which alerts join on."""
    for rule in RULES:
        if "record" in rule:
            assert "tool" in grouped(rule["expr"]) <= {"tool", "le"}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("rate(trustfold_tool_calls[5m])", "trustfold_tool_calls is not exposed"),
        ('trustfold_tool_calls_total{model="x"}', "trustfold_tool_calls_total has no label model"),
        ('trustfold_tool_calls_total{scope=~"called|cache"}', "scope of trustfold_tool_calls_total is never cache"),
        ("sum by (topic) (trustfold_states)", "nothing here has the label topic"),
    ],
)
def test_the_check_finds_what_is_not_exposed(query: str, said: str) -> None:
    """A wrong name, label, value and group."""
    assert faults(query) == [said]


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_alerts_say_what_to_do(name: str) -> None:
    """Severity, one line that says what is wrong, and a description that names what to look at."""
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in {"warning", "critical"}
    summary, description = alert["annotations"]["summary"], alert["annotations"]["description"]
    assert len(summary) < 100
    assert len(description) > 40
    labels = set(re.findall(r"\$labels\.(\w+)", summary + description))
    assert labels <= {"job", "instance"}.union(*samples().values())

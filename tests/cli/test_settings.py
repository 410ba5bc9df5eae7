"""`trustfold settings`, `recovery`, `nudge`, `model`: levels saved, cleared and shown, in a store and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import trustfold, up
from trustfold.rules.rules import RuleSet
from trustfold.streams.embedded.engine import EmbeddedEngine

WHO = {"TRUSTFOLD_WORKSPACE": "acme", "TRUSTFOLD_USER": "ada", "TRUSTFOLD_SESSION": "s1"}


@pytest.fixture(params=["store", "http"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory whose store is closed, or served by a running `up`."""
    if request.param == "http":
        with up(cwd=tmp_path):
            yield tmp_path
    else:
        EmbeddedEngine.open(tmp_path / ".trustfold" / "trustfold.sqlite", RuleSet()).close()
        yield tmp_path


def run(*words: str, cwd: Path, code: int = 0, **env: str) -> str:
    """Run a command as ada in session s1 of acme; returns what it says, standard error last."""
    done = trustfold(*words, cwd=cwd, env=WHO | env)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    return (done.stdout + done.stderr).decode()


def shown(cwd: Path, **env: str) -> dict[str, tuple[Any, str]]:
    """Every setting with its source, as `trustfold settings --json` says."""
    done = trustfold("settings", "--json", cwd=cwd, env=WHO | env)
    assert done.returncode == 0, done.stderr
    return {one["setting"]: (one["value"], one["source"]) for one in json.loads(done.stdout)["settings"]}


@pytest.mark.slow
def test_each_level_is_saved_shown_and_cleared(where: Path) -> None:
    """User, workspace, session, each over the one before; cleared, the one below shows again."""
    assert shown(where)["nudge_level"] == ("full", "default")
    assert run("nudge", "gentle", "save", "user", cwd=where) == "✓ nudge_level 'gentle' saved for user:ada\n"
    assert shown(where)["nudge_level"] == ("gentle", "user")
    assert run("nudge", "direct", "save", "workspace", cwd=where) == "✓ nudge_level 'direct' saved for workspace:acme\n"
    assert shown(where)["nudge_level"] == ("direct", "workspace")
    assert run("nudge", "off", cwd=where) == "✓ nudge_level set to 'off' for session:s1\n"
    assert shown(where)["nudge_level"] == ("off", "session")
    assert shown(where, TRUSTFOLD_NUDGE_LEVEL="full")["nudge_level"] == ("off", "session"), "the engine's environment"
    assert run("nudge", cwd=where) == "nudge_level: off (session)\n"
    run("settings", "clear", "session", cwd=where)
    assert shown(where)["nudge_level"] == ("direct", "workspace")
    run("settings", "clear", "workspace", "nudge_level", cwd=where)
    assert shown(where)["nudge_level"] == ("gentle", "user")
    asked = run("settings", "clear", "user", cwd=where, code=2)
    assert "add --yes" in asked
    run("settings", "clear", "user", "--yes", cwd=where)
    assert shown(where)["nudge_level"] == ("full", "default")


@pytest.mark.slow
def test_saving_writes_only_what_the_session_set(where: Path) -> None:
    """`settings save workspace` takes the session's own settings, not those merged from other levels."""
    run("recovery", "ask", "save", "user", cwd=where)
    run("settings", "save", "session", "nudge_enabled=false", cwd=where)
    run("model", "auto", cwd=where)
    said = run("settings", "save", "workspace", cwd=where)
    assert said.splitlines()[:3] == [
        "✓ Saved for workspace:acme:",
        "    - nudge_enabled: false",
        "    - model_switch_strategy: auto",
    ]
    run("settings", "clear", "session", cwd=where)
    now = shown(where)
    assert now["nudge_enabled"] == (False, "workspace")
    assert now["model_switch_strategy"] == ("auto", "workspace")
    assert now["recovery_mode"] == ("ask", "user")
    run("recovery", "auto", cwd=where)
    assert "saved for workspace:acme" in run("recovery", "save", "workspace", cwd=where)
    assert shown(where)["recovery_mode"] == ("auto", "session")


@pytest.mark.slow
def test_null_unsets_and_an_explicit_false_wins(where: Path) -> None:
    """NAME=null inherits again; false is a value like any other."""
    run("settings", "save", "user", "pattern_detection_enabled=false", cwd=where)
    run("settings", "save", "workspace", "pattern_detection_enabled=true", "recovery_mode=ask", cwd=where)
    assert shown(where)["pattern_detection_enabled"] == (True, "workspace")
    said = run("settings", "save", "workspace", "pattern_detection_enabled=null", cwd=where)
    assert "pattern_detection_enabled: unset" in said
    assert shown(where)["pattern_detection_enabled"] == (False, "user")
    assert shown(where)["recovery_mode"] == ("ask", "workspace")


@pytest.mark.slow
def test_rules_and_policies_of_a_level_come_from_files(where: Path) -> None:
    """A rules file for one workspace; each rule is shown with its source, and so is each policy."""
    (where / "strict.toml").write_text("[trust.default_rule]\ncount_threshold = 1\n")
    (where / "p.json").write_text(
        '{"prerequisite_policies": [{"policy_id": "plan", "prerequisite_tool": "plan", "gated_tools": ["edit"]}]}'
    )
    run("settings", "save", "workspace", "--rules", "strict.toml", "--policies", "p.json", cwd=where)
    now = shown(where)
    assert now["rules.trust.default_rule.count_threshold"] == (1, "workspace")
    assert now["policies.plan"][1] == "workspace"
    listed = json.loads(trustfold("policies", "list", "--json", cwd=where, env=WHO).stdout)["policies"]
    assert [(one["name"], one["requires"], one["within_turns"], one["source"]) for one in listed] == [
        ("plan", "plan", 2, "workspace")
    ]
    assert "plan before edit, within 2 turns" in run("settings", cwd=where, COLUMNS="200")
    run("settings", "clear", "workspace", "rules", "policies", cwd=where)
    assert "rules.trust.default_rule.count_threshold" not in shown(where)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nudge", "loud"], "'loud' is not understood; use off|gentle|direct|full, optionally save workspace|user"),
        (["nudge", "off", "save", "session"], "is not understood"),
        (["settings", "save", "user", "nudge_level=loud"], "nudge_level: must be one of off, gentle"),
        (["settings", "save", "user", "nudge=off"], "unknown setting 'nudge'; choose from nudge_level,"),
        (["settings", "save", "user", "nudge_level"], "the session does not set nudge_level; give it a value"),
        (["settings", "save", "session"], "name the settings of the session: NAME=VALUE"),
        (["settings", "save", "team", "nudge_level=off"], "'team' is not one of"),
        (["settings", "save", "user", "--rules", "b.toml"], "rules.breakers: circuits are shared by everybody"),
        (["settings", "save", "user", "--policies", "b.toml"], "b.toml:1: breakers: a policies file holds policies"),
        (["recovery", "save", "workspace"], "session:s1 does not set recovery_mode; name the value to save"),
        (["settings", "--json", "save", "user", "nudge_level=off"], "options of `settings save` go after its name"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(tmp_path: Path, words: list[str], said: str) -> None:
    """Exit code 2, one line that says what would be right, and every setting as it was."""
    EmbeddedEngine.open(tmp_path / ".trustfold" / "trustfold.sqlite", RuleSet()).close()
    (tmp_path / "b.toml").write_text("[breakers.tool]\nopen_s = 5\n")
    before = shown(tmp_path)
    assert said in run(*words, cwd=tmp_path, code=2)
    assert shown(tmp_path) == before


def test_nobody_named_is_refused(tmp_path: Path) -> None:
    """Without a session there is nobody to set anything for; the way out is named."""
    EmbeddedEngine.open(tmp_path / ".trustfold" / "trustfold.sqlite", RuleSet()).close()
    said = run("nudge", "off", cwd=tmp_path, code=2, TRUSTFOLD_SESSION="")
    assert "off for whom? Name a --session, or add `save workspace` or `save user`" in said
    said = run("settings", "save", "workspace", cwd=tmp_path, code=2, TRUSTFOLD_SESSION="")
    assert "which session? Name it with --session ID, or set TRUSTFOLD_SESSION" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "value", "refused"),
    [
        ("TRUSTFOLD_NO_USER_PERSIST", "true", ["user"]),
        ("TRUSTFOLD_NO_WORKSPACE_PERSIST", "1", ["workspace"]),
        ("TRUSTFOLD_SESSION_ONLY", "yes", ["user", "workspace"]),
        ("TRUSTFOLD_PERSIST", "false", ["user", "workspace"]),
    ],
)
def test_the_environment_may_forbid_saving(tmp_path: Path, variable: str, value: str, refused: list[str]) -> None:
    """The older names: nothing is saved for the levels they mean; the others, and sessions, go on."""
    EmbeddedEngine.open(tmp_path / ".trustfold" / "trustfold.sqlite", RuleSet()).close()
    for level in ("user", "workspace", "session"):
        code = 2 if level in refused else 0
        said = run("settings", "save", level, "nudge_level=off", cwd=tmp_path, code=code, **{variable: value})
        assert (f"{variable}" in said) == (level in refused)


def test_the_engines_environment_wins_and_says_so(tmp_path: Path) -> None:
    """What `up` was started with goes before every level, and whoever saves below it is told."""
    with up(cwd=tmp_path, env={"TRUSTFOLD_NUDGE_LEVEL": "off", "TRUSTFOLD_THRESHOLD": "7"}):
        said = run("nudge", "full", "save", "workspace", cwd=tmp_path)
        assert "nudge_level of the environment takes precedence while it is set there" in said
        now = shown(tmp_path)
        assert now["nudge_level"] == ("off", "environment")
        assert now["rules.trust.default_rule.count_threshold"] == (7, "environment")


@pytest.mark.slow
def test_the_table_names_values_and_sources(where: Path) -> None:
    """People get the table: setting, value, source."""
    run("nudge", "direct", cwd=where)
    run("recovery", "ask", "save", "workspace", cwd=where)
    run("settings", "save", "user", "nudge_enabled=true", cwd=where)
    rows = [line.split(maxsplit=2) for line in run("settings", cwd=where).splitlines()]
    cells = {row[0]: tuple(cell.strip() for cell in row[1:]) for row in rows if len(row) == 3}
    assert cells["nudge_level"] == ("direct", "session (override)")
    assert cells["recovery_mode"] == ("ask", "workspace")
    assert cells["nudge_enabled"] == ("true", "user (default)")
    assert cells["model_switch_strategy"] == ("suggest", "default")


def test_http_takes_and_answers_settings(tmp_path: Path) -> None:
    """The interface behind it: a record in, faults with their path, every level out."""
    record = {"type": "settings.changed", "schema_version": "1.0", "time": "2026-01-05T10:00:00Z", "scope": "user:ada"}
    with up(cwd=tmp_path) as server:
        good = json.dumps(record | {"id": "1", "overrides": {"nudge_level": "gentle"}}).encode()
        bad = json.dumps(record | {"id": "2", "overrides": {"rules": {"enabled": False}}}).encode()
        assert server.post("/v1/settings", good) == {"accepted": 1, "dead_letters": 0}
        answer = server.post("/v1/settings", bad)
        assert answer["faults"][0]["path"] == "$.overrides.rules.enabled"
        levels = server.get("/v1/settings?user=ada&workspace=acme")["levels"]
        assert levels == {"environment": {}, "session": {}, "workspace": {}, "user": {"nudge_level": "gentle"}}
        letters = server.lines("/v1/dead-letters")
        assert [one["value"]["topic"] for one in letters] == ["settings"]

"""`trustfold config` and `policies`: files checked, shown, and taken while an engine runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from command_line import Up, trustfold, up
from story import Story
from trustfold.config import RuleFiles, load_rules
from trustfold.rules.rules import BehaviourRules, RuleSet
from trustfold.schemas.vocabulary import NudgeLevel
from trustfold.streams.reload import RulesReloader
from waiting import wait_until

LEVEL = '[nudges]\nlevel = "{}"\n'


def said(*words: str, cwd: Path, code: int = 0, **env: str) -> str:
    """What a command says, standard error last."""
    done = trustfold(*words, cwd=cwd, env=env)
    assert done.returncode == code, done.stderr
    return (done.stdout + done.stderr).decode()


def test_check_names_the_fault_and_its_line(tmp_path: Path) -> None:
    """A good file is told as such; a bad one is exit code 2 with file, line, field and fix."""
    (tmp_path / "good.toml").write_text(LEVEL.format("off"))
    (tmp_path / "bad.toml").write_text("[nudges]\n\nlevle = 'off'\n")
    assert said("config", "check", "good.toml", cwd=tmp_path) == "✓ good.toml can be used: 1 value set\n"
    report = json.loads(said("config", "check", "good.toml", "--json", cwd=tmp_path))
    assert report == {"file": "good.toml", "ok": True, "rules": ["nudges.level"]}
    fault = said("config", "check", "bad.toml", cwd=tmp_path, code=2)
    assert fault == "trustfold: bad.toml:3: nudges.levle: there is no such rule; did you mean 'level'?\n"


def test_show_prints_a_rules_file(tmp_path: Path) -> None:
    """What files and environment give, as TOML that gives it again; secrets are not shown."""
    (tmp_path / "r.toml").write_text('[trust.tool_rules."my tool"]\ncount_threshold = 1\n[nudges]\nlevel="gentle"\n')
    env = {"TRUSTFOLD_RULES": "r.toml", "TRUSTFOLD_WINDOW": "60", "TRUSTFOLD_TOKEN": "hush"}
    text = said("config", "show", cwd=tmp_path, **env)
    assert "hush" not in text
    assert "# TRUSTFOLD_TOKEN=***" in text
    assert "# file r.toml" in text
    (tmp_path / "again.toml").write_text(text)
    again = load_rules(tmp_path / "again.toml")
    assert again.trust.tool_rules["my tool"].count_threshold == 1
    assert again.trust.default_rule.window_seconds == 60
    assert again.nudges.level is NudgeLevel.GENTLE
    everything = tmp_path / "all.toml"
    everything.write_text(said("config", "show", "--all", cwd=tmp_path))
    assert load_rules(everything) == RuleSet()
    assert json.loads(said("config", "show", "--json", cwd=tmp_path))["rules"]["nudges"]["level"] == "full"


def test_validate_lists_the_policies(tmp_path: Path) -> None:
    """Each policy as a sentence; a fault with its line."""
    (tmp_path / "p.toml").write_text(
        "[policies.plan]\nrequires = 'plan'\nbefore = ['edit', 'write*']\nwithin_turns=3\n"
    )
    assert "    - plan: plan before edit, write*, within 3 turns" in said(
        "policies", "validate", "p.toml", cwd=tmp_path
    )
    (tmp_path / "p.toml").write_text("[policies.plan]\nrequires = 'plan'\nbefore = ['edit']\nwithin = 3\n")
    fault = said("policies", "validate", "p.toml", cwd=tmp_path, code=2)
    assert fault.startswith("trustfold: p.toml:4: policies.plan.within: there is no such rule; ")


def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    """A changed file gives its rules; a broken one gives a fault and nothing else, until it is mended."""
    path = tmp_path / "r.toml"
    path.write_text(LEVEL.format("gentle"))
    files = RuleFiles(path)
    taken = [files.load()]
    reloader = RulesReloader(files, taken.append)
    assert not reloader.look()
    path.write_text(LEVEL.format("direct"))
    assert reloader.look()
    assert taken[-1].nudges.level is NudgeLevel.DIRECT
    path.write_text(LEVEL.format("loud"))
    assert not reloader.look()
    assert "r.toml:2: nudges.level: must be one of off, gentle, direct, full" in str(reloader.fault)
    assert not reloader.look()
    path.unlink()
    assert not reloader.look()
    assert "cannot be read" in str(reloader.fault)
    path.write_text(LEVEL.format("off"))
    assert reloader.look()
    assert (reloader.fault, taken[-1].nudges.level, len(taken)) == (None, NudgeLevel.OFF, 3)
    replaced = tmp_path / "new.toml"
    replaced.write_text(LEVEL.format("off"))
    os.utime(replaced, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    replaced.rename(path)
    assert reloader.look(), "another file under the same name, time and size"


@pytest.fixture
def looping() -> list[bytes]:
    """A model that repeats itself, in sessions numbered from 0."""
    lines = []
    for number in range(40):
        story = Story(session=f"s{number}")
        story.works("read_file", {"path": "/a"}, times=BehaviourRules().repetitive_calls.minor)
        lines.append(b"\n".join(value.replace(b'"00000000-', b'"%08d-' % number) for _, value in story.records))
    return lines


def nudged(server: Up, lines: list[bytes]) -> bool:
    """Whether a model that repeats itself in a new session is spoken to."""
    after = server.get("/v1/state")["offset"]
    server.post("/v1/events", lines.pop())
    return any(one["value"]["type"] == "nudge.issued" for one in server.lines(f"/v1/decisions?after={after}"))


def test_a_running_engine_takes_changed_rules(tmp_path: Path, looping: list[bytes]) -> None:
    """`up` goes by a changed file within a moment; a broken one changes nothing, and status says why."""
    rules = tmp_path / "r.toml"
    rules.write_text(LEVEL.format("off"))
    with up("--rules", "r.toml", cwd=tmp_path) as server:
        assert not nudged(server, looping)
        rules.write_text(LEVEL.format("full"))
        assert "✓ reloaded: r.toml" in said("policies", "reload", cwd=tmp_path)
        assert nudged(server, looping)
        rules.write_text(LEVEL.format("loud"))
        fault = wait_until(lambda: server.get("/v1/state")["rules_fault"], what="the fault")
        assert fault.startswith("r.toml:2: nudges.level: must be one of off, gentle, direct, full")
        assert nudged(server, looping), "the previous rules stay in force"
        assert server.get("/healthz") == {"status": "ok", "rules_fault": fault}
        assert fault in said("status", cwd=tmp_path)
        document = trustfold("status", "--json", "--url", server.url, cwd=tmp_path).stdout
        assert json.loads(document)["rules_fault"] == fault
        assert fault in said("policies", "reload", cwd=tmp_path, code=2)
        rules.write_text(LEVEL.format("off"))
        wait_until(lambda: not nudged(server, looping), what="the mended rules", every=0.5)
        assert server.get("/v1/state")["rules_fault"] is None


def test_a_running_engine_takes_changed_policies(tmp_path: Path) -> None:
    """The policies file beside the rules file; what is listed is what is in force."""
    path = tmp_path / "p.toml"
    path.write_text("[policies.plan]\nrequires = 'plan'\nbefore = ['edit']\n")

    def listed() -> dict[str, Any]:
        found = json.loads(said("policies", "list", "--json", cwd=tmp_path))["policies"]
        return {one["name"]: one["source"] for one in found}

    with up("--policies", "p.toml", cwd=tmp_path):
        assert listed() == {"plan": "default"}
        path.write_text("[policies.look]\nrequires = 'look'\nbefore = ['edit']\n")
        assert "p.toml" in said("policies", "reload", cwd=tmp_path)
        assert listed() == {"look": "default"}


def test_reload_needs_somebody_to_reload(tmp_path: Path) -> None:
    """Over a store that no engine runs on there is nothing to do, and it says so."""
    with up(cwd=tmp_path):
        assert said("policies", "reload", cwd=tmp_path) == "it has no files; there is nothing to reload\n"
    assert "no engine runs on .trustfold/trustfold.sqlite" in said("policies", "reload", cwd=tmp_path, code=1)


def test_up_without_persistence_leaves_nothing(tmp_path: Path) -> None:
    """TRUSTFOLD_PERSIST=false: the store is gone when it stops."""
    with up(cwd=tmp_path, env={"TRUSTFOLD_PERSIST": "false"}) as server:
        assert server.get("/v1/state")["states"] == []
        assert server.stop() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_would_not_be_kept_is_refused(tmp_path: Path) -> None:
    """`--store` under TRUSTFOLD_PERSIST=false contradicts it; nothing is started."""
    done = trustfold("up", "--port", "0", "--store", "s.db", cwd=tmp_path, env={"TRUSTFOLD_PERSIST": "false"})
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"--store keeps nothing under TRUSTFOLD_PERSIST=false" in done.stderr


def test_up_with_the_kill_switch_folds_nothing(tmp_path: Path, looping: list[bytes]) -> None:
    """TRUSTFOLD_ENABLED=false: events are taken and nothing comes of them."""
    with up(cwd=tmp_path, env={"TRUSTFOLD_ENABLED": "false"}) as server:
        assert not nudged(server, looping)
        assert server.lines("/v1/decisions?topics=nudges,state,dead-letters,escalations") == []


def test_whoever_switches_everything_off_is_told(tmp_path: Path, looping: list[bytes]) -> None:
    """A replay that decides nothing says why."""
    (tmp_path / "events.ndjson").write_bytes(b"\n".join(looping))
    done = trustfold("replay", "events.ndjson", "--json", cwd=tmp_path, env={"TRUSTFOLD_ENABLED": "false"})
    assert done.stdout == b""
    assert b"TRUSTFOLD_ENABLED is false" in done.stderr


def test_replay_takes_settings_from_a_file_and_from_its_lines(tmp_path: Path, looping: list[bytes]) -> None:
    """--settings gives those in effect; a settings record among the events changes them from there on."""
    story = Story()
    story.saves("workspace:w1", nudge_enabled=False)
    story.saves("workspace:w1")
    off, on = (value for _, value in story.records)
    (tmp_path / "settings.ndjson").write_bytes(off + b"\n")
    (tmp_path / "events.ndjson").write_bytes(b"\n".join([looping[0], on, looping[1], off, looping[2]]))

    def sessions(*words: str) -> list[str]:
        printed = trustfold("replay", "events.ndjson", "--json", *words, cwd=tmp_path).stdout.splitlines()
        return [one["session_id"] for one in map(json.loads, printed) if one["type"] == "nudge.issued"]

    assert sessions() == ["s0", "s1"]
    assert sessions("--settings", "settings.ndjson") == ["s1"]
    (tmp_path / "settings.ndjson").write_bytes(off + b"\n" + off.replace(b"false", b'"no"') + b"\n")
    fault = said("replay", "events.ndjson", "--settings", "settings.ndjson", cwd=tmp_path, code=2)
    assert fault.startswith("trustfold: settings.ndjson:2: $.overrides.nudge_enabled: ")


def test_check_names_a_ladder_that_could_never_hold(tmp_path: Path) -> None:
    """Its file, line and name, and what would make it hold."""
    (tmp_path / "r.toml").write_text("[behaviour]\nwindow_steps = 8\n[behaviour.repetitive_calls]\nsevere = 12\n")
    fault = said("config", "check", "r.toml", cwd=tmp_path, code=2)
    assert fault.startswith("trustfold: r.toml:1: behaviour: ")
    assert "repetitive_calls has a step at 12 repetitions" in fault
    assert "window_steps" in fault


def test_policies_show_their_own_ladders_and_texts(tmp_path: Path) -> None:
    """`policies validate` and `list` read them from the file; both forms of the file have them."""
    own = {
        "prerequisite_policies": [
            {
                "policy_id": "plan",
                "prerequisite_tool": "make_plan",
                "gated_tools": ["write_file"],
                "severity_thresholds": {"minor": 0, "severe": 4},
                "nudge_templates": {"minor": "Call {prerequisite_tool} first."},
            }
        ]
    }
    (tmp_path / "p.json").write_text(json.dumps(own))
    text = said("policies", "validate", "p.json", cwd=tmp_path)
    assert "make_plan before write_file, within 2 turns; own steps: minor after 0, severe after 4; own texts" in text
    found = json.loads(said("policies", "validate", "p.json", "--json", cwd=tmp_path))["policies"]["plan"]
    assert found["severity_thresholds"] == {"minor": 0, "severe": 4}
    assert found["texts"] == {"minor": "Call {required_tool} first."}
    with up("--policies", "p.json", cwd=tmp_path):
        assert "own steps" in said("policies", "list", cwd=tmp_path)


def test_config_alone_shows_the_rules(tmp_path: Path) -> None:
    """As `config show` does, also as `reliability config`."""
    env = {"TRUSTFOLD_THRESHOLD": "7"}
    shown = trustfold("config", "show", cwd=tmp_path, env=env)
    for words in (("config",), ("reliability", "config")):
        alone = trustfold(*words, cwd=tmp_path, env=env)
        assert (alone.returncode, alone.stdout) == (0, shown.stdout)
    assert b"count_threshold = 7" in shown.stdout

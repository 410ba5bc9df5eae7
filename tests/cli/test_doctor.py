"""`trustfold doctor` without Kafka: what it looks at on this machine, and what it says."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from command_line import trustfold, up
from refolded import lenient
from trustfold.cli import doctor_kafka, doctor_machine
from trustfold.cli.clients import kafka_log
from trustfold.cli.main import main
from trustfold.projections.rule_source import RuleSource
from trustfold.rules.rules import RuleSet
from trustfold.schemas.topics import TopicRole
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.kafka.broker_queries import BrokerClock
from trustfold.streams.kafka.kafka_settings import KafkaSettings

Checks = dict[str, dict[str, str]]


def examine(tmp_path: Path, env: Mapping[str, str] | None = None, code: int = 0) -> Checks:
    """Findings of the doctor in a directory, by check."""
    done = trustfold("doctor", "--json", cwd=tmp_path, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is (code == 0)
    return {one["check"]: one for one in document["checks"]}


def test_an_empty_directory_is_in_order(tmp_path: Path) -> None:
    """Without Kafka, files or store nothing is to be mended; what was skipped has a reason. Nothing is made."""
    found = examine(tmp_path)
    assert {name for name, one in found.items() if one["status"] == "skipped"} == {
        *("rules", "policies", "store", "history", "server", "agent hooks", "kafka"),
    }
    assert all(one["found"] for one in found.values())
    assert "no broker is named" in found["kafka"]["found"]
    assert list(tmp_path.iterdir()) == []
    shown = trustfold("doctor", cwd=tmp_path)
    assert shown.returncode == 0
    assert shown.stdout.startswith(b"ok      versions: trustfold ")
    assert shown.stderr == b"no problems found\n"


def test_what_is_there_is_looked_at(tmp_path: Path) -> None:
    """Rules, policies, a store, a history and a running server."""
    (tmp_path / "r.toml").write_text("[trust.default_rule]\ncount_threshold = 2\n")
    (tmp_path / "p.toml").write_text('[policies.plan]\nrequires = "plan"\nbefore = ["write"]\nwithin_turns = 2\n')
    (tmp_path / "h").mkdir()
    env = {
        "TRUSTFOLD_RULES": "r.toml",
        "TRUSTFOLD_POLICIES": "p.toml",
        "TRUSTFOLD_HISTORY": "h",
        "TRUSTFOLD_DB": "s.db",
    }
    with up("--store", "s.db", cwd=tmp_path) as server:
        found = examine(tmp_path, env | {"TRUSTFOLD_URL": server.url})
    assert [found[name]["status"] for name in ("rules", "policies", "store", "history", "server")] == ["ok"] * 5
    assert "GiB free" in found["store"]["found"]


@pytest.mark.parametrize(
    ("env", "check", "told"),
    [
        ({"TRUSTFOLD_RULES": "broken.toml"}, "rules", "broken.toml:2"),
        ({"TRUSTFOLD_POLICIES": "none.toml"}, "policies", "cannot be read"),
        ({"TRUSTFOLD_DB": "broken.toml"}, "store", "not a trustfold store"),
        ({"TRUSTFOLD_HISTORY": "broken.toml"}, "history", "is not a directory"),
        ({"TRUSTFOLD_HISTORY": "https://here/x"}, "history", "files below a web address cannot be listed"),
        ({"TRUSTFOLD_URL": "http://127.0.0.1:1"}, "server", "nothing answers"),
        ({"TRUSTFOLD_PORT": "many"}, "settings", "TRUSTFOLD_PORT is 'many'"),
        ({"TRUSTFOLD_THRESHOLD": "-1"}, "settings", "TRUSTFOLD_THRESHOLD"),
        ({"TRUSTFOLD_BROKER": "127.0.0.1:1"}, "broker 127.0.0.1:1", "cannot be reached"),
        ({"TRUSTFOLD_BROKER": "a:1", "TRUSTFOLD_SASL_PASSWORD": "hush"}, "kafka settings", "has no effect"),
        ({"TRUSTFOLD_SASL_PASSWORD": "hush"}, "kafka", "no broker is named, but TRUSTFOLD_SASL_PASSWORD is set"),
    ],
)
def test_what_is_to_be_mended(tmp_path: Path, env: dict[str, str], check: str, told: str) -> None:
    """Each fault has its line, with what to do, and the exit code 1; nothing secret is shown."""
    (tmp_path / "broken.toml").write_text("[trust]\nno_such_rule = 1\n")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(tmp_path)
        done = CliRunner().invoke(main, ["doctor", "--json"], env=env)
    found = {one["check"]: one for one in json.loads(done.stdout)["checks"]}
    assert done.exit_code == 1
    assert found[check]["status"] == "fix"
    assert told in found[check]["found"]
    assert found[check]["advice"]
    assert "hush" not in done.stdout


def test_a_variable_nobody_reads_is_named(tmp_path: Path) -> None:
    """A misspelt variable is told with the one that was meant; it may be another program's, so it is no fault."""
    found = examine(tmp_path, {"TRUSTFOLD_BROCKER": "a:1"})["environment"]
    assert (found["status"], found["advice"]) == ("note", "did you mean TRUSTFOLD_BROKER?")


def test_a_history_in_an_object_store_is_known(tmp_path: Path) -> None:
    """It is neither missing nor a directory; what reads it and what does not is said."""
    found = examine(tmp_path, {"TRUSTFOLD_HISTORY": "s3://bucket/team"})["history"]
    assert found["status"] == "note"
    assert found["found"].startswith("s3://bucket/team is an object store")
    assert "need a local directory" in found["advice"]


def test_rules_that_an_engine_could_not_take(tmp_path: Path) -> None:
    """A store says that the newest rules file is not in force."""
    path = tmp_path / "s.sqlite"
    with EmbeddedEngine.open(path) as engine:
        engine.note_fault("r.toml:2: no such rule")
    assert doctor_machine._store(path).status is doctor_machine.CheckStatus.FIX
    assert "r.toml:2" in doctor_machine._store(path).found


def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Little space is to be mended before it ends; a part of a small disk counts as well as an amount."""
    usage: Any = namedtuple("usage", "total used free")  # noqa: PYI024 - as shutil has it
    for free, status in ((3 << 30, "ok"), (1 << 29, "fix"), (2 << 30, "fix")):
        total = 100 << 30 if free == 2 << 30 else 20 << 30
        monkeypatch.setattr(shutil, "disk_usage", lambda _, total=total, free=free: usage(total, total - free, free))
        assert doctor_machine.disk("store", tmp_path / "not" / "there.sqlite", "TRUSTFOLD_DB").status == status


@pytest.mark.parametrize(("ahead", "status"), [(0.4, "ok"), (-4.9, "ok"), (6.0, "fix"), (-3600.0, "fix")])
def test_clocks_that_lie_apart(monkeypatch: pytest.MonkeyPatch, ahead: float, status: str) -> None:
    """More than some seconds of difference are to be mended."""

    async def clock(_admin: Any) -> BrokerClock:
        return BrokerClock(ahead, 0.01)

    async def told() -> list[str]:
        return [str(one.status) async for one in doctor_kafka._clock(KafkaSettings(), None, TopicRole.WORKER)]

    monkeypatch.setattr(doctor_kafka, "clock_of", clock)
    assert asyncio.run(told()) == [status]


def in_force(key: str, rules: RuleSet) -> kafka_log.StoredRecord:
    """A record of the topic `rules`."""
    return kafka_log.StoredRecord(0, 0, key, RuleSource(rules).in_force(), 0, ())


def test_workers_that_go_by_different_files_are_told() -> None:
    """The latest record of each partition counts; those that differ are named with their place."""
    same = [in_force("events/0", lenient()), in_force("events/0", RuleSet()), in_force("events/1", RuleSet())]
    assert doctor_kafka.rules_finding(same).status == "ok"
    found = doctor_kafka.rules_finding([*same, in_force("outcomes/1", lenient())])
    assert found.status == "fix"
    assert "2 different rules" in found.found
    assert "outcomes/1" in found.found
    assert doctor_kafka.rules_finding([]).status == "skipped"

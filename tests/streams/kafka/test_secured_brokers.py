"""Brokers with TLS, SASL/SCRAM and ACLs: every role works with the rights that trustfold prints."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from busy_agents import busy_agents
from click.testing import CliRunner, Result
from command_line import environment, serving
from dashboard_kit import now_page, order
from local_kafka_jars import KafkaInstallation
from probing import free_port, status
from recent_events import recent_events
from secured_kafka import SecuredKafka, secured_kafka
from trustfold.cli.main import main
from trustfold.streams.kafka.acls import RolePrincipals, acls
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from waiting import wait_until
from warm_process import WarmProcess

pytestmark = [pytest.mark.durable_broker, pytest.mark.slow]

ROLES = {
    "agents": "platform",
    "operators": "operator",
    "trustfold": "worker",
    "recorders": "recorder",
    "dashboards": "dashboard",
}
REAUTHENTICATION_MS = "3000"
"""Brokers end a connection of that age, since aiokafka does not authenticate again; a worker must survive it."""


@pytest.fixture(scope="module")
def kafka(kafka_jars: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """Such a broker, with a user of each role and one without rights, and the topics made by the operator."""
    with secured_kafka(tmp_path_factory.mktemp("secured"), connections_max_reauth_ms=REAUTHENTICATION_MS) as secured:
        for user in (*ROLES, "nobody"):
            secured.add_user(user)
        secured.grant(acls(KafkaSettings(), RolePrincipals()))
        made = command(secured, "operators", "topics", "create")
        assert made.exit_code == 0, made.output
        yield secured


ONE = ("--workspace", "workspace-2")


def command(kafka: SecuredKafka, user: str, *words: str | Path, **more: str) -> Result:
    """Run a command as a user."""
    environ = {"TRUSTFOLD_PARTITIONS": "2", **kafka.environ(user, **more)}
    return CliRunner().invoke(main, [str(word) for word in words], env=environ)


def process_of(kafka: SecuredKafka, user: str, log: Path, *words: str | Path, **more: str) -> subprocess.Popen[bytes]:
    """Start a command as a user, by default a worker."""
    more = {"TRUSTFOLD_PARTITIONS": "2", "TRUSTFOLD_CHECKPOINT_INTERVAL": "0.2", **more}
    with log.open("wb") as told:
        return WarmProcess(
            [sys.executable, "-m", "trustfold", *map(str, words or ("worker",))],
            env=environment(kafka.environ(user, **more)),
            stderr=told,
        )


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A file of events."""
    path = tmp_path / "events.ndjson"
    path.write_bytes(b"\n".join(recent_events(value for _, value in busy_agents(10, 20))))
    return path


def test_every_role_works_with_the_printed_rights(kafka: SecuredKafka, events: Path, tmp_path: Path) -> None:
    """Everybody does their work, and `doctor` finds no problem for any of them.

    Connections that the broker ends for their age are made again, without a word in the log.
    """

    def folded_everything() -> bool:
        groups = orjson.loads(command(kafka, "operators", "lag", "--json").stdout)["groups"]
        return [one["lag_records"] for one in groups if one["role"] == "worker"] == [0]

    def nothing_behind(page: str) -> bool:
        # A lag of 0 does not last: the order is months younger than the events, and some seconds after the last record
        # the worker appends what fell due in between (`time.passed` of idle keys), which it then folds.
        freshness = page.partition('id="freshness"')[2].partition("</span>")[0]
        return "Newest data" in freshness and "behind" not in freshness

    assert command(kafka, "agents", "publish", "--now", events).exit_code == 0
    log = tmp_path / "worker.log"
    with process_of(kafka, "trustfold", log) as process:
        try:
            wait_until(folded_everything, timeout=90, what=log.read_text, every=2)
            assert command(kafka, "agents", "publish", "--now", events).exit_code == 0
            for user, role in ROLES.items():
                looked = command(kafka, user, "doctor", "--role", role, "--json")
                wrong = [one for one in orjson.loads(looked.stdout)["checks"] if one["status"] == "fix"]
                assert (looked.exit_code, wrong) == (0, []), user
            recorded = command(kafka, "recorders", "record", "--once", "--history", tmp_path / "history")
            assert recorded.exit_code == 0, recorded.output
            assert command(kafka, "operators", "reset", "bash", *ONE, "--yes").exit_code == 0
            assert command(kafka, "operators", "dead-letters", "list").exit_code == 0
            wait_until(folded_everything, timeout=90, what=log.read_text, every=2)
            pages = ("web", "--port", "0", "--allow-local-orders")
            with serving(*pages, cwd=tmp_path, env=kafka.environ("dashboards")) as web:
                wait_until(lambda: nothing_behind(now_page(web)), what=lambda: now_page(web), every=0.5)
                status, answer = order(web, "reset", "bash")
                assert status == 200, answer
                assert web.stop() == 0
        finally:
            process.terminate()
    assert process.returncode == 0, log.read_text()
    assert not re.search("WARNING|ERROR|CRITICAL|Traceback", log.read_text()), log.read_text()


@pytest.mark.parametrize(
    "words",
    [("publish", "--topic", "commands"), ("remove", "bash", *ONE, "--yes"), ("lag",), ("record", "--once")],
    ids=" ".join,
)
def test_publishers_may_not_do_what_is_not_theirs(
    kafka: SecuredKafka, events: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Orders, the state of the groups and the history are for others."""
    more = {"publish": [events], "record": ["--history", tmp_path / "history"]}.get(words[0], [])
    refused(command(kafka, "agents", *words, *more), "user agents", "trustfold topics acls")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A certificate of an authority that has signed nothing here."""
    path = tmp_path_factory.mktemp("stranger") / "strange.pem"
    new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "/dev/null", "-subj", "/CN=stranger")
    path.write_bytes(subprocess.run(new, check=True, capture_output=True).stdout)
    return str(path)


COMMANDS = (("topics", "create"), ("topics", "check"), ("worker",), ("publish",), ("record", "--once"), ("lag",))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_entry(kafka: SecuredKafka, events: Path, tmp_path: Path, stranger: str, words: tuple[str, ...]) -> None:
    """A wrong password, an authority that is not trusted, missing rights: one line says so and what to do."""
    more = {"publish": [events], "record": ["--history", tmp_path / "history"]}.get(words[0], [])
    prefix = {"TRUSTFOLD_TOPIC_PREFIX": "other."} if words == ("topics", "create") else {}
    refused(command(kafka, "trustfold", *words, *more, TRUSTFOLD_SASL_PASSWORD="wrong"), "TRUSTFOLD_SASL_USERNAME")
    refused(command(kafka, "trustfold", *words, *more, TRUSTFOLD_SSL_CA_LOCATION=stranger), "TRUSTFOLD_SSL_CA_LOCATION")
    refused(command(kafka, "nobody", *words, *more, **prefix), "user nobody", "trustfold topics acls")


def refused(result: Result, *words: str) -> None:
    """A command ended with one line about what is wrong, which holds these words."""
    assert result.exit_code == 2, (result.exit_code, result.output, result.exception)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("trustfold: "), result.stderr
    assert all(word in last for word in words), last
    assert "Unclosed" not in result.stderr


def test_doctor_names_what_is_refused(kafka: SecuredKafka) -> None:
    """It goes on to look, and says for each thing what to do."""
    plain = {"TRUSTFOLD_SECURITY_PROTOCOL": "SSL", "TRUSTFOLD_SASL_USERNAME": "", "TRUSTFOLD_SASL_PASSWORD": ""}
    cases = (
        ({"TRUSTFOLD_SASL_PASSWORD": "wrong"}, "trustfold", "TRUSTFOLD_SASL_USERNAME"),
        (plain, "", "SASL"),
        ({}, "nobody", "kafka-acls --add --allow-principal User:nobody"),
    )
    for environ, user, remedy in cases:
        looked = command(kafka, user, "doctor", "--json", "--role", "worker", **environ)
        fixes = [one["advice"] for one in orjson.loads(looked.stdout)["checks"] if one["status"] == "fix"]
        assert looked.exit_code == 1
        assert any(remedy in fix for fix in fixes), fixes


def test_credentials_that_end_under_a_running_worker(kafka: SecuredKafka, tmp_path: Path) -> None:
    """The brokers refuse the next connection: the worker ends within ten seconds of that, and says what to renew."""
    log = tmp_path / "worker.log"
    kafka.add_user("leaver")
    kafka.grant(acls(KafkaSettings(), RolePrincipals(worker="User:leaver")))
    with process_of(kafka, "leaver", log) as process:
        try:
            wait_until(lambda: "ready in generation" in log.read_text(), timeout=90, what=log.read_text)
            kafka.remove_user("leaver")
            assert process.wait(int(REAUTHENTICATION_MS) / 1000 + 10) == 1, log.read_text()
        finally:
            process.kill()
    last = log.read_text().strip().splitlines()[-1]
    assert "renew TRUSTFOLD_SASL_PASSWORD" in last
    assert "Traceback" not in log.read_text()


def test_credentials_that_end_under_a_running_recorder(kafka: SecuredKafka, tmp_path: Path) -> None:
    """It ends within ten seconds of the next refused connection, and says what to correct."""
    log, port = tmp_path / "recorder.log", free_port()
    kafka.add_user("archivist")
    kafka.grant(acls(KafkaSettings(), RolePrincipals(recorder="User:archivist")))
    words = ("record", "--history", tmp_path / "history", "--flush", "0.1")
    with process_of(kafka, "archivist", log, *words, TRUSTFOLD_WEB_PORT=str(port)) as process:
        try:
            wait_until(lambda: status(port, "/readyz") == (200, "ok"), timeout=90, what=log.read_text)
            kafka.remove_user("archivist")
            assert process.wait(int(REAUTHENTICATION_MS) / 1000 + 10) == 2, log.read_text()
        finally:
            process.kill()
    assert "correct TRUSTFOLD_SASL_USERNAME" in log.read_text()
    assert "Traceback" not in log.read_text()

"""The compose file is well formed, waits for the right things, and starts only commands that exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml
from trustfold.cli.main import main

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
OPTIONAL = {"demo": ["demo"], "prometheus": ["observe"], "grafana": ["observe"]}
"""Services that a plain `up` leaves out, and the profiles that start them."""
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def compose_plugin() -> list[str] | None:
    """How to call docker compose here, or None."""
    if shutil.which("docker") is None:
        return None
    known = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=60, check=False)
    return ["docker", "compose"] if known.returncode == 0 else None


def resolve(words: list[str]) -> click.Command:
    """The command of the CLI that these words name; fails on a word that is no command."""
    command: click.Command = main
    context = click.Context(main, info_name="trustfold")
    for word in words:
        if word.startswith("-") or not isinstance(command, click.Group):
            break
        found = command.get_command(context, word)
        assert found is not None, f"`trustfold {' '.join(words)}`: no command {word!r}"
        context = click.Context(found, info_name=word, parent=context)
        command = found
    return command


def test_services_are_the_ones_that_work() -> None:
    """Kafka, the topics, two workers, the recorder, and what is optional; nothing that does not exist yet."""
    assert set(SERVICES) == {"kafka", "topics", "worker-1", "worker-2", "recorder", *OPTIONAL}


@pytest.mark.parametrize("name", sorted(OURS))
def test_commands_exist(name: str) -> None:
    """What a service runs is a complete command of the CLI with options that it has."""
    words = OURS[name]["command"]
    command = resolve(words)
    assert not isinstance(command, click.Group)
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_workers_wait_for_the_topics() -> None:
    """Neither a worker nor the recorder starts before Kafka answers and the topics are there."""
    assert "healthcheck" in SERVICES["kafka"]
    assert SERVICES["topics"]["depends_on"]["kafka"]["condition"] == "service_healthy"
    for worker in ("worker-1", "worker-2", "recorder"):
        assert SERVICES[worker]["depends_on"]["topics"]["condition"] == "service_completed_successfully"


def test_demo_and_observers_are_optional() -> None:
    """Plain `docker compose up` starts everything but the demo publisher, Prometheus and Grafana."""
    assert {name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service} == OPTIONAL


def test_prometheus_reads_every_worker_and_recorder() -> None:
    """Each serves its metrics to the other containers, at the port where Prometheus asks for them."""
    jobs = yaml.safe_load((ROOT / "ops" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    by_name = {job["job_name"]: job.get("static_configs", ()) for job in jobs}
    for job, command in (("trustfold-workers", "worker"), ("trustfold-recorders", "record")):
        asked = [target for one in by_name[job] for target in one["targets"]]
        asking = {name: service for name, service in SERVICES.items() if service.get("command") == [command]}
        served = [f"{name}:{service['environment']['TRUSTFOLD_WEB_PORT']}" for name, service in asking.items()]
        assert sorted(asked) == sorted(served) != []
        assert {service["environment"]["TRUSTFOLD_WEB_BIND"] for service in asking.values()} == {"0.0.0.0"}


def test_each_says_whether_it_is_healthy() -> None:
    """Kafka, workers, the recorder and Prometheus; ours by the port that they serve."""
    for name in ("kafka", "worker-1", "worker-2", "recorder", "prometheus"):
        assert "test" in SERVICES[name]["healthcheck"]
    for name in ("worker-1", "worker-2", "recorder"):
        port = SERVICES[name]["environment"]["TRUSTFOLD_WEB_PORT"]
        assert f"http://localhost:{port}/readyz" in SERVICES[name]["healthcheck"]["test"][-1]


def test_ports_are_local() -> None:
    """A broker without authentication listens on this machine only."""
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_images_are_pinned() -> None:
    """What is pulled has a full version; `latest` would differ from day to day."""
    for service in SERVICES.values():
        if "build" not in service:
            version = service["image"].partition(":")[2].removeprefix("v")
            assert version.count(".") == 2
            assert version.replace(".", "").isdigit()


def test_kafka_is_the_one_we_test_with() -> None:
    """The broker of the compose file has the version of the broker in the tests."""
    pom = (ROOT / "ops" / "kafka" / "pom.xml").read_text()
    tested = re.search(r"<kafka\.version>(.+)</kafka\.version>", pom)
    assert tested is not None
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{tested[1]}"


def test_grafana_is_the_one_we_test_with() -> None:
    """The types that the dashboard is checked against are those of the Grafana that shows it."""
    version = SERVICES["grafana"]["image"].partition(":")[2]
    assert f"@grafana/schema@{version}" in (ROOT / ".ci" / "run").read_text()


def test_volumes_are_declared() -> None:
    """Each named volume that is mounted is declared, none besides; what is mounted from here exists, read-only."""
    mounts = [mount.split(":") for service in SERVICES.values() for mount in service.get("volumes", [])]
    here = [mount for mount in mounts if mount[0].startswith(".")]
    assert {mount[0] for mount in mounts if mount not in here} == set(COMPOSE["volumes"])
    assert [mount for mount in here if not (ROOT / mount[0]).exists() or mount[2:] != ["ro"]] == []


def test_docker_compose_accepts_it() -> None:
    """`docker compose config` reads the file, with and without what is optional."""
    docker = compose_plugin()
    if docker is None:
        pytest.skip("the docker command has no compose plugin here")
    for profile in ([], ["--profile", "demo", "--profile", "observe"]):
        done = subprocess.run(
            [*docker, *profile, "config", "--format", "json"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        expected = set(SERVICES) if profile else set(SERVICES) - set(OPTIONAL)
        assert set(json.loads(done.stdout)["services"]) == expected

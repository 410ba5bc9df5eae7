"""The Helm chart renders objects that are valid for Kubernetes, runs commands that exist and refuses impossible values.

`tests/ops/chart/` has two installations and what Helm makes of each; `make chart` renders them anew. Their first line
has the digest of the chart, so that a change of the chart without them is seen where Helm is missing.
"""

import hashlib
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from trustfold.cli.main import main

ROOT = Path(__file__).parents[2]
CHART = ROOT / "ops" / "helm" / "trustfold"
RENDERED = Path(__file__).parent / "chart"
INSTALLATIONS = ("smallest", "everything")
BUILT_IN = re.compile(r"(v1|[a-z]+/v\d|[a-z.]+\.k8s\.io/v\d)\Z")
"""Versions of Kubernetes' own objects; others are of operators."""
KUBERNETES = "1.31"
"""Version of Kubernetes whose schemas are taken."""

with_schemas = pytest.mark.skipif(find_spec("kubernetes_validate") is None, reason="no kubernetes-validate from PyPI")
with_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="no helm: https://helm.sh/docs/intro/install/")


def objects(name: str) -> list[dict[str, Any]]:
    """Objects of a rendered installation."""
    return [found for found in yaml.load_all((RENDERED / f"{name}.yaml").read_text(), yaml.CSafeLoader) if found]


def one(name: str, kind: str, end: str) -> dict[str, Any]:
    """The object of this kind whose name ends so."""
    (found,) = (each for each in objects(name) if each["kind"] == kind and each["metadata"]["name"].endswith(end))
    return found


def containers() -> list[Any]:
    """Every container of both installations, as a parameter with a readable id."""
    return [
        pytest.param(container, id=f"{name}-{container['name']}")
        for name in INSTALLATIONS
        for found in objects(name)
        if "template" in found.get("spec", {})
        for container in found["spec"]["template"]["spec"]["containers"]
    ]


def digest() -> str:
    """Digest of everything that the chart consists of, as `make chart` writes it."""
    files = sorted((path for path in CHART.rglob("*") if path.is_file()), key=str)
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Helm on the chart."""
    return subprocess.run(["helm", *words], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", INSTALLATIONS)
def test_the_rendered_files_are_of_this_chart(name: str) -> None:
    """Needs no Helm."""
    first, _, _ = (RENDERED / f"{name}.yaml").read_text().partition("\n")
    assert first == f"# chart {digest()}", "the chart changed: run `make chart` and look at the difference"


def validate(found: dict[str, Any]) -> None:
    """Compare an object with Kubernetes' schema of its kind; a field that it does not have is an error."""
    import kubernetes_validate

    kubernetes_validate.validate(found, KUBERNETES, strict=True)


@with_schemas
@pytest.mark.parametrize("name", INSTALLATIONS)
def test_kubernetes_accepts_the_objects(name: str) -> None:
    """By Kubernetes' own schemas; a field that it does not know is an error."""
    own = [found for found in objects(name) if BUILT_IN.fullmatch(found["apiVersion"])]
    assert {found["kind"] for found in own} >= {"Deployment", "StatefulSet", "PodDisruptionBudget", "Service", "Job"}
    for found in own:
        validate(found)


@with_schemas
def test_kubernetes_refuses_a_misspelt_field() -> None:
    """The check finds what it is there for."""
    worker = one("smallest", "Deployment", "-worker")
    worker["spec"]["template"]["spec"]["terminationGracePeriod"] = 15
    with pytest.raises(Exception, match="terminationGracePeriod"):
        validate(worker)


@pytest.mark.parametrize("container", containers())
def test_containers_run_commands_that_exist(container: dict[str, Any]) -> None:
    """Their options, too, and their variables stand in the page of settings."""
    command: click.Command = main
    context = click.Context(main)
    words = list(container["args"])
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command = found
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    page = (ROOT / "docs" / "operating.md").read_text()
    assert [entry["name"] for entry in container["env"] if f"`{entry['name']}`" not in page] == []


@pytest.mark.parametrize("container", containers())
def test_containers_have_no_more_rights_than_they_need(container: dict[str, Any]) -> None:
    """No root, no capability, nothing written but to volumes."""
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_jobs_are_those_of_the_alerts() -> None:
    """`up{job="trustfold-workers"}` finds the workers of a cluster."""
    (endpoint,) = one("everything", "ServiceMonitor", "trustfold")["spec"]["endpoints"]
    replacement = endpoint["relabelings"][0]["replacement"]
    asked = set(re.findall(r'job="(trustfold-\w+)"', (ROOT / "ops" / "prometheus" / "rules.yml").read_text()))
    assert {replacement.replace("$1", component) for component in ("worker", "recorder")} == asked
    rules = one("everything", "PrometheusRule", "trustfold")["spec"]
    assert rules == yaml.safe_load((ROOT / "ops" / "prometheus" / "rules.yml").read_text())


def test_a_worker_has_time_to_stop() -> None:
    """As docs/operating.md says; the folder with records that ended a worker outlives its container."""
    pod = one("smallest", "Deployment", "-worker")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 15
    (container,) = pod["containers"]
    folder = next(entry["value"] for entry in container["env"] if entry["name"] == "TRUSTFOLD_DATA_DIR")
    assert any(folder.startswith(mount["mountPath"]) and mount["name"] == "data" for mount in container["volumeMounts"])


@with_helm
def test_helm_finds_no_fault() -> None:
    """Warnings count."""
    for name in INSTALLATIONS:
        linted = helm("lint", "--strict", str(CHART), "--values", str(RENDERED / f"{name}.values.yaml"))
        assert linted.returncode == 0, linted.stdout + linted.stderr


@with_helm
@pytest.mark.parametrize("name", INSTALLATIONS)
def test_helm_renders_the_same(name: str) -> None:
    """What `make chart` wrote is what Helm makes of the chart."""
    values = RENDERED / f"{name}.values.yaml"
    rendered = helm(
        "template", "tools", str(CHART), "--namespace", "agents", "--kube-version", KUBERNETES, "--values", str(values)
    )
    assert rendered.returncode == 0, rendered.stderr
    assert (RENDERED / f"{name}.yaml").read_text().partition("\n")[2] == rendered.stdout


@with_helm
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "bootstrap"),
        (["kafka.bootstrap=kafka"], "bootstrap"),
        (["kafka.bootstrap=k:1", "worker.replicas=13"], "worker.replicas is 13 and kafka.partitions 12"),
        (["kafka.bootstrap=k:1", "worker.autoscaling.kind=cpu", "worker.autoscaling.max=20"], "autoscaling.max is 20"),
        (["kafka.bootstrap=k:1", "web.enabled=true"], "web.tokens is required"),
        (["kafka.bootstrap=k:1", "worker.replica=3"], "replica"),
    ],
)
def test_values_that_cannot_work_are_refused(given: list[str], said: str) -> None:
    """With the name of the value, before anything is installed."""
    refused = helm(
        "template",
        "tools",
        str(CHART),
        "--kube-version",
        KUBERNETES,
        *(word for each in given for word in ("--set", each)),
    )
    assert refused.returncode != 0
    assert said in refused.stderr

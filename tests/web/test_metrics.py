"""Metrics of a server, as Prometheus reads them."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from busy_agents import busy_agents
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.server import make_app
from trustfold.streams.embedded.sign_in import RoleTokens
from trustfold.web.dashboard import current_state
from trustfold.web.dashboard.current_state import UnreadableRecord
from trustfold.web.routes import more_routes

TOKEN = {"Authorization": "Bearer publisher"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TestClient]:
    """A server in this process that asks for a token."""
    path = tmp_path / "store.sqlite"
    app = make_app(EmbeddedEngine.open(path), path, roles=RoleTokens("publisher", "operator"), more=more_routes)
    with TestClient(app, base_url="http://127.0.0.1:8321", headers=TOKEN) as client:
        yield client


def samples(server: TestClient) -> dict[tuple[str, str], float]:
    """Value of each sample by its name and its label's value."""
    answer = server.get("/metrics")
    assert answer.status_code == 200
    return {
        (one.name, next(iter(one.labels.values()), "")): one.value
        for family in text_string_to_metric_families(answer.text)
        for one in family.samples
    }


def test_a_server_counts_what_it_takes_and_decides(server: TestClient) -> None:
    """Records, decisions and dead letters, as the answers of the server say them."""
    events = [value for _, value in busy_agents(10, 20)]
    answer = server.post("/v1/events", content=b"\n".join([*events, b'{"type": "unheard of"}'])).json()
    assert (answer["accepted"], answer["dead_letters"]) == (len(events), 1)
    decisions = server.get(
        "/v1/decisions?topics=nudges,escalations,breakers,suggestions&limit=100000"
    ).text.splitlines()
    found = samples(server)
    assert found["trustfold_records_total", "events"] == len(events) + 1
    told = ("nudges", "escalations", "breakers", "suggestions")
    assert sum(found.get(("trustfold_outputs_total", topic), 0) for topic in told) == len(decisions) > 0
    assert found["trustfold_outputs_total", "dead-letters"] == 1
    reasons = {label: value for (name, label), value in found.items() if name == "trustfold_dead_letters_total"}
    assert sum(reasons.values()) == 1
    assert (found["trustfold_store_up", ""], found["trustfold_rules_up", ""]) == (1, 1)
    assert found["trustfold_store_bytes", ""] > 10_000
    assert found["trustfold_waiting_bytes", ""] == 0


def test_records_that_the_dashboard_cannot_read_are_counted(
    server: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, when a page reads the states."""

    def unreadable(_value: bytes) -> None:
        raise UnreadableRecord("$.type: unknown")

    assert samples(server)["trustfold_dashboard_skipped_records_total", ""] == 0
    monkeypatch.setattr(current_state, "read_decision", unreadable)
    server.post("/v1/events", content=b"\n".join(value for _, value in busy_agents(10, 20)))
    assert server.get("/", headers={"Accept": "text/html"}).status_code == 200
    skipped = samples(server)["trustfold_dashboard_skipped_records_total", ""]
    assert skipped > 0
    server.get("/", headers={"Accept": "text/html"})
    assert samples(server)["trustfold_dashboard_skipped_records_total", ""] == skipped


def test_incidents_are_counted_by_state(server: TestClient) -> None:
    """As the API lists them; what waits for nobody is 0, too."""
    server.post("/v1/events", content=b"\n".join(value for _, value in busy_agents(10, 20)))
    listed = Counter(one["state"] for one in server.get("/v1/incidents").json()["incidents"])
    found = {label: value for (name, label), value in samples(server).items() if name == "trustfold_incidents"}
    assert found["waiting"] == 0
    assert {state: number for state, number in found.items() if number} == listed
    assert listed


def test_a_body_that_is_sent_again_counts_once(server: TestClient) -> None:
    """It is answered from the first time."""
    body = b"\n".join(value for _, value in busy_agents(1, 5))
    before = [server.post("/v1/events", content=body).json()["accepted"] for _ in range(2)]
    assert samples(server)["trustfold_records_total", "events"] == before[0] == before[1]


def test_only_who_has_a_token_reads_them(server: TestClient) -> None:
    """They name tools of nobody, but say how much is going on."""
    assert server.get("/metrics", headers={"Authorization": ""}).status_code == 401


def test_promtool_is_content(server: TestClient) -> None:
    """Names, units and help texts are as Prometheus wants them."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed")
    text = server.get("/metrics").content
    done = subprocess.run([found, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")

"""Telling an address of incidents: once each, signed, again until it is accepted, and never its secret."""

from __future__ import annotations

import asyncio
import hmac
import logging
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import orjson
import pytest
from command_line import trustfold, up
from dashboard_kit import failures
from trustfold.config import EnvironmentSettings, WebhookFormat
from trustfold.errors import ConfigError
from trustfold.projections.incidents import IncidentRecord, OpenAsk, SessionNews, of_session
from trustfold.schemas.codec import rfc3339
from trustfold.schemas.public_state import IncidentUpdated, public_state
from trustfold.schemas.vocabulary import PatternSeverity
from trustfold.web.webhook import QUIET_MS, IncidentNotice, IncidentWebhook, NoticeLedger, WebhookTarget, webhook_of
from waiting import wait_until

NOW = 1_767_607_200_000
SECRET = b"of the receiver"


def incident(key: str, state: str, severity: int, news: SessionNews | None = None) -> IncidentRecord:
    """An incident of a key."""
    return IncidentRecord((0,), key, state, severity, key, "default", NOW - 5_000, NOW, 1 << 62, session=news)


def told(ledger: NoticeLedger, at_ms: int, *incidents: IncidentRecord) -> list[str]:
    """What is due at a time, all of it accepted."""
    found = ledger.due(incidents, at_ms)
    for notice in found:
        ledger.accepted(notice)
    return [f"{notice.change} {notice.incident.key}" for notice in found]


def test_an_incident_is_told_when_it_opens_gets_worse_and_is_over() -> None:
    """And never twice; a circuit that probes and opens again says nothing."""
    ledger = NoticeLedger()
    assert told(ledger, NOW, incident("a", "open", 2), incident("b", "recovering", 1)) == ["opened a"]
    assert told(ledger, NOW + 1, incident("a", "half-open", 1)) == []
    assert told(ledger, NOW + 2, incident("a", "open", 2)) == []
    assert told(ledger, NOW + 3, incident("a", "blocked", 3)) == ["worsened a"]
    assert told(ledger, NOW + 4, incident("a", "waiting", 3)) == ["worsened a"]
    assert told(ledger, NOW + 5) == []
    assert told(ledger, NOW + 5 + QUIET_MS, incident("b", "open", 2)) == ["opened b", "resolved a"]
    assert told(ledger, NOW + 6 + QUIET_MS, incident("a", "open", 2), incident("b", "open", 2)) == ["opened a"]


def test_an_acknowledged_incident_is_not_announced_but_its_end_is() -> None:
    """Nor after a restart; one that got worse is acknowledged no more."""
    noted = public_state(
        {"schema_version": "1.0", "id": "n", "time": rfc3339(NOW), "kind": "incident", "key": "a",
         "severity": "moderate", "acknowledged_at": rfc3339(NOW)}
    )  # fmt: skip
    assert isinstance(noted, IncidentUpdated)
    ledger = NoticeLedger()
    assert told(ledger, NOW, incident("a", "open", 2)._replace(acknowledged=noted)) == []
    assert told(ledger, NOW + 1, incident("a", "blocked", 3)) == ["worsened a"]
    assert told(NoticeLedger(), NOW, incident("a", "open", 2)._replace(acknowledged=noted)) == []
    assert told(ledger, NOW + 2 + QUIET_MS) == ["resolved a"]


def test_one_that_flaps_is_one_incident() -> None:
    """Gone for less than a minute, it was never over."""
    ledger = NoticeLedger()
    changes = []
    for second in range(0, 600, 10):
        there = [incident("a", "open", 2)] if second % 40 < 10 else []
        changes += told(ledger, NOW + 1000 * second, *there)
    assert changes == ["opened a"]


@pytest.mark.parametrize(
    ("least", "state", "severity", "expected"),
    [
        (PatternSeverity.MINOR, "recovering", 1, True),
        (PatternSeverity.MODERATE, "recovering", 1, False),
        (PatternSeverity.SEVERE, "open", 2, False),
        (PatternSeverity.SEVERE, "waiting", 1, True),
        (PatternSeverity.MINOR, "abandoned", 3, False),
        (PatternSeverity.MINOR, "unknown", 3, False),
    ],
)
def test_who_is_told(least: PatternSeverity, state: str, severity: int, expected: bool) -> None:
    """What needs somebody, from a severity on; what waits for a person always."""
    assert bool(told(NoticeLedger(least), NOW, incident("a", state, severity))) is expected


def test_what_was_not_accepted_is_due_again_as_it_is_now() -> None:
    """Nothing queues up: an address that was away hears of the latest state, and not of what is over."""
    ledger = NoticeLedger()
    first = ledger.due([incident("a", "open", 2), incident("b", "open", 2)], NOW)
    again = ledger.due([incident("a", "blocked", 3)], NOW + 1)
    assert [(one.change, one.incident.state) for one in again] == [("opened", "blocked")]
    assert first[0].id != again[0].id


def test_a_restart_tells_it_again_under_the_same_id() -> None:
    """By which a receiver drops it."""
    ids = {NoticeLedger().due([incident("a", "open", 2)], NOW + later)[0].id for later in (0, 5_000, 99_000)}
    assert len(ids) == 1


def test_a_message_for_a_chat_holds_no_markup_from_outside() -> None:
    """Nobody is called, and no link hides where it leads."""
    news = SessionNews(
        "s<1>", "w", asks=(OpenAsk("c", "", "Bash `rm` <!channel> & <https://evil|good>", NOW),), news_ms=NOW
    )
    one = of_session(news, NOW)
    assert one is not None
    target = WebhookTarget("https://chat.test/x", form=WebhookFormat.SLACK, page="http://here:8321/")
    text = orjson.loads(target.body(IncidentNotice("opened", one, NOW)))["text"]
    assert "&lt;!channel&gt; &amp; &lt;https://evil|good&gt;" in text
    assert text.count("<") == 1
    assert text.endswith("<http://here:8321/sessions/s%3C1%3E|Look at it>")


class ReceivedRequest(NamedTuple):
    """A request that arrived."""

    headers: dict[str, str]
    body: bytes


class WebhookReceiver:
    """Receiver on this machine; answers with the given statuses, then with 204."""

    def __init__(self, *statuses: int) -> None:
        """Nothing has arrived."""
        self.requests: list[ReceivedRequest] = []
        self.url = ""
        self._statuses = list(statuses)

    def take(self, request: BaseHTTPRequestHandler) -> None:
        """Read a request and answer."""
        body = request.rfile.read(int(request.headers["content-length"]))
        self.requests.append(ReceivedRequest({name.lower(): value for name, value in request.headers.items()}, body))
        request.send_response(self._statuses.pop(0) if self._statuses else 204)
        request.send_header("location", "http://127.0.0.1:9/elsewhere")
        request.end_headers()

    @property
    def told(self) -> list[dict[str, Any]]:
        """Bodies that arrived."""
        return [orjson.loads(one.body) for one in self.requests]


@contextmanager
def receiving(*statuses: int) -> Iterator[WebhookReceiver]:
    """Run a receiver."""
    receiver = WebhookReceiver(*statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.take(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/hooks/T0KEN"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()


class FixedBoard:
    """Board with one incident: a session that waits for an answer."""

    def incidents(self, now_ms: int) -> list[IncidentRecord]:
        """The incident."""
        news = SessionNews("s1", "w", asks=(OpenAsk("c", "", "Bash `make`", NOW),), news_ms=NOW)
        return [one for one in [of_session(news, now_ms)] if one is not None]


def test_a_request_is_signed_and_tried_again_until_it_is_accepted(caplog: pytest.LogCaptureFixture) -> None:
    """Every attempt has the same id; a redirect is no acceptance; the log names the host once, and no path."""
    caplog.set_level(logging.WARNING)
    with receiving(500, 302) as receiver:
        webhook = IncidentWebhook(FixedBoard(), WebhookTarget(receiver.url, SECRET), lambda: NOW)  # type: ignore[arg-type]

        async def play() -> list[bool]:
            return [await webhook.send_due() for _ in range(4)]

        assert asyncio.run(play()) == [False, False, True, True]
    assert [one["type"] for one in receiver.told] == ["incident.opened"] * 3
    assert len({one.headers["webhook-id"] for one in receiver.requests}) == 1
    for request in receiver.requests:
        head = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode()
        version, _, signature = request.headers["webhook-signature"].partition(",")
        assert version == "v1"
        assert b64decode(signature) == hmac.digest(SECRET, head + request.body, "sha256")
    assert [record.getMessage().partition("127.0.0.1")[2].partition(": ")[2] for record in caplog.records] == [
        "HTTP 500; it is tried again", "",
    ]  # fmt: skip
    assert "T0KEN" not in caplog.text


def test_nobody_at_the_address_is_a_fault_without_the_address() -> None:
    """The port was free a moment ago."""
    with receiving() as receiver:
        pass
    webhook = IncidentWebhook(FixedBoard(), WebhookTarget(receiver.url), lambda: NOW)  # type: ignore[arg-type]
    assert not asyncio.run(webhook.send_due())
    assert (webhook.fault, webhook.accepted) == ("NewConnectionError", 0)


def test_what_the_environment_names() -> None:
    """A secret as such or as services print it; a wrong address is told without its text."""
    named = EnvironmentSettings(webhook="https://h.test/T0KEN", webhook_secret=f"whsec_{b64encode(SECRET).decode()}")
    target = webhook_of(named, "http://here")
    assert target is not None
    assert (target.secret, target.page, target.place) == (SECRET, "http://here", "https://h.test")
    assert webhook_of(EnvironmentSettings(), "") is None
    for wrong in (
        EnvironmentSettings(webhook="h.test/T0KEN"),
        EnvironmentSettings(webhook="https://h", webhook_secret="whsec_%"),
    ):
        with pytest.raises(ConfigError) as told_so:
            webhook_of(wrong, "")
        assert "T0KEN" not in str(told_so.value)


@pytest.mark.usefixtures("fixed_rules_file")
def test_a_server_tells_of_an_outage_and_of_its_end(tmp_path: Path) -> None:
    """From the failed call to the request, with the order that resolves it."""
    with receiving() as receiver:
        environment = {"TRUSTFOLD_WEBHOOK": receiver.url}
        with up("--store", tmp_path / "s.sqlite", cwd=tmp_path, env=environment) as server:
            server.post("/v1/events", failures("deploy"))
            wait_until(lambda: receiver.requests, what="a request")
            data = receiver.told[0]["data"]
            wait_until(
                lambda: b"\ntrustfold_webhook_notices_total 1.0" in server.request("GET", "/metrics")[1], what="it"
            )
            assert b"\ntrustfold_webhook_up 1.0" in server.request("GET", "/metrics")[1]
    assert (receiver.told[0]["type"], data["state"], data["subject"]) == ("incident.opened", "escalated", "deploy")
    assert data["orders"] == ["trustfold recover 'deploy'"]
    assert data["url"] == f"{server.url}/?q=deploy"


@pytest.mark.usefixtures("fixed_rules_file")
def test_doctor_says_that_a_receiver_accepts_nothing(tmp_path: Path) -> None:
    """With its answer, and without its address."""
    with (
        receiving(*[410] * 50) as receiver,
        up("--store", tmp_path / "s.sqlite", cwd=tmp_path, env={"TRUSTFOLD_WEBHOOK": receiver.url}) as server,
    ):
        server.post("/v1/events", failures("deploy"))
        wait_until(lambda: b'"webhook":"HTTP 410"' in server.request("GET", "/v1/incidents")[1], what="the fault")
        done = trustfold("doctor", "--json", cwd=tmp_path, env={"TRUSTFOLD_URL": server.url})
    assert done.returncode == 1
    assert b"its webhook did not accept the latest notice: HTTP 410" in done.stdout
    assert b"T0KEN" not in done.stdout

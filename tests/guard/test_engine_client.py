"""The one HTTP client of a running engine: whose fault an error is, what is not followed, and streams that end."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
import pytest
from story import START
from trustfold.config import EnvironmentSettings
from trustfold.errors import ConfigError, TargetUnreachable, TookTooLong
from trustfold.guard.backends import base, http
from trustfold.guard.backends.engine_client import EngineClient, EngineRefused
from trustfold.guard.metrics import EVENTS, GuardMetrics
from trustfold.schemas.commands import BreakerForceOpen
from trustfold.schemas.events import TurnStarted

SILENT = threading.Event()


def counts(accepted: int, *, dead: int = 0) -> bytes:
    """An engine's answer to a post."""
    return orjson.dumps({"accepted": accepted, "dead_letters": dead})


class Handler(BaseHTTPRequestHandler):
    """An engine that answers by the path."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer one request."""
        self.server.seen.append((self.path, self.client_address[1], self.headers.get("Authorization")))  # type: ignore[attr-defined]
        match self.path.partition("?")[0]:
            case "/elsewhere":
                self._answer(307, b"", Location="/state")
            case "/busy":
                self._answer(503, b'{"error":"starting"}')
            case "/forbidden":
                self._answer(403, b'{"error":"give the operator\'s token"}')
            case "/stream":
                self._stream(b'{"n":1}\n\n{"n"', b":2}\n{", b'"n":3}\n')
            case "/silent":
                self._stream(b'{"n":1}\n')
                SILENT.wait(20)
            case "/cut":
                self._stream(b'{"n":1}\n', end=b"5\r\nab")
                self.close_connection = True
            case _:
                self._answer(200, self.path.encode())

    do_POST = do_GET  # noqa: N815 - as above

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, *parts: bytes, end: bytes = b"0\r\n\r\n") -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        if not self.path.startswith("/silent"):
            self.wfile.write(end)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Any]:
    """A server of the test's own."""
    SILENT.clear()
    made: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.seen = []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    SILENT.set()
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def client(server: Any) -> EngineClient:
    """A client of that server."""
    return EngineClient(f"http://127.0.0.1:{server.server_port}/behind", 20)


def direct(server: Any, timeout_s: float = 20) -> EngineClient:
    """A client without a path before the engine's own."""
    return EngineClient(f"http://127.0.0.1:{server.server_port}", timeout_s)


def test_requests_share_a_connection_and_keep_the_path_in_front(server: Any, client: EngineClient) -> None:
    """The token goes with the request that has one."""
    assert client.request("GET", "/state?a=1") == b"/behind/state?a=1"
    assert client.request("POST", "/v1/events", b"{}", token="t") == b"/behind/v1/events"
    (_, first, without), (_, second, bearer) = server.seen
    assert (first, without, bearer) == (second, None, "Bearer t")


def test_proxies_and_redirects_are_not_followed(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine's address means that engine, whatever the environment or an answer says."""
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert direct(server).request("GET", "/state") == b"/state"
    with pytest.raises(EngineRefused, match=r"refused \(307\)"):
        direct(server).request("GET", "/elsewhere")


@pytest.mark.parametrize(("path", "words", "temporary"), [("/busy", "starting", True), ("/forbidden", "give", False)])
@pytest.mark.parametrize("streams", [False, True])
def test_an_error_names_the_server_and_its_words(
    server: Any, path: str, words: str, *, temporary: bool, streams: bool
) -> None:
    """Some may end well when tried again."""
    client = direct(server)
    with pytest.raises(EngineRefused, match=rf"{client.name} refused \(\d+\): {words}") as caught:
        client.stream(path, silence_s=20) if streams else client.request("GET", path)
    assert caught.value.temporary is temporary


def test_nobody_or_nobody_in_time(server: Any) -> None:
    """The messages say which, who was asked and what to do."""
    nobody = EngineClient("http://user:secret@127.0.0.1:1", 20)
    with pytest.raises(
        TargetUnreachable, match=r"nothing answers at http://127\.0\.0\.1:1 \(.*refused\); is `trustfold up`"
    ):
        nobody.request("GET", "/")
    with pytest.raises(TookTooLong, match="did not answer within 0 s; look at its log"):
        direct(server, 0.2).request("GET", "/silent")


@pytest.mark.parametrize("wrong", ["127.0.0.1:1", "ftp://x", "http://", "http://[::1", "http://x:port"])
def test_a_malformed_address(wrong: str) -> None:
    """It is refused before anything is asked."""
    with pytest.raises(ConfigError, match="is no address"):
        EngineClient(wrong, 1)


def test_a_stream_yields_whole_lines(server: Any) -> None:
    """However they are cut into parts; heartbeats are left out, and a broken end is an error."""
    assert list(direct(server).stream("/stream", silence_s=20)) == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    lines = iter(direct(server).stream("/cut", silence_s=20))
    assert next(lines) == b'{"n":1}'
    with pytest.raises(TargetUnreachable):
        next(lines)


def test_a_silent_stream_ends(server: Any) -> None:
    """After the time given, or at once when another thread interrupts it."""
    lines = iter(direct(server).stream("/silent", silence_s=0.2))
    assert next(lines) == b'{"n":1}'
    with pytest.raises(TookTooLong):
        next(lines)
    stream, ended = direct(server).stream("/silent", silence_s=60), threading.Event()

    def read() -> None:
        with pytest.raises(TargetUnreachable):
            list(stream)
        ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    stream.interrupt()
    reader.join(60)
    assert ended.is_set()
    stream.close()
    stream.interrupt()


def test_a_child_process_uses_connections_of_its_own(server: Any) -> None:
    """Two processes on one connection would read each other's answers."""
    client = direct(server)
    client.request("GET", "/parent")
    if (child := os.fork()) == 0:
        client.after_fork()
        os._exit(client.request("GET", "/child") != b"/child")
    assert os.waitpid(child, 0)[1] == 0
    assert client.request("GET", "/parent") == b"/parent"
    ports = {path: {port for seen, port, _ in server.seen if seen == path} for path in ("/parent", "/child")}
    assert len(ports["/parent"]) == 1
    assert ports["/parent"].isdisjoint(ports["/child"])


def test_a_follower_outlives_answers_that_are_no_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Valid JSON of another shape is an interruption like any other: the guard is not connected, and tries again."""
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(http, "LAST_PAUSE_S", 0.001)
    states = iter([b"null", b"[]", b'{"states":null}', b'{"states":[1],"offset":0}', b'{"states":[],"offset":null}'])
    lines = iter([b"null", b"5", b"[1]", b"{}"])
    tried = threading.Event()

    def request(_self: EngineClient, _method: str, _path: str, *_more: Any, **_options: Any) -> bytes:
        return next(states, b'{"states":[],"offset":0}')

    def stream(_self: EngineClient, _path: str, **_options: Any) -> Any:
        if (line := next(lines, None)) is None:
            tried.set()
            raise TargetUnreachable("gone")
        return OneLine(line)

    monkeypatch.setattr(EngineClient, "request", request)
    monkeypatch.setattr(EngineClient, "stream", stream)
    backend = http.HttpBackend("http://127.0.0.1:1", GuardMetrics(), 10)
    backend._begin()
    assert tried.wait(60)
    assert not backend.connected
    asyncio.run(backend.close())


class OneLine:
    """A stream of one line."""

    def __init__(self, line: bytes) -> None:
        self._lines = [line]

    def __iter__(self) -> Iterator[bytes]:
        yield from self._lines

    def interrupt(self) -> None:
        """Nothing waits."""

    close = interrupt


@pytest.mark.parametrize(
    "foreign", [b"<html>", b"", b"null", b"{}", b'{"status":"ok"}', counts(0), counts(3), b"[2,0]"]
)
def test_events_stay_buffered_until_an_engine_takes_them(monkeypatch: pytest.MonkeyPatch, foreign: bytes) -> None:
    """A sign-in page or a gateway's own words, with 200, are no engine's: it would have counted what it took."""
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.001)
    answers = iter([foreign, b"<html>", foreign, b"<html>", counts(1, dead=1)])
    monkeypatch.setattr(EngineClient, "request", lambda *_args, **_options: next(answers))
    metrics = GuardMetrics()
    backend = http.HttpBackend("http://127.0.0.1:1", metrics, 10)
    backend._post("/v1/events", [turn(1), turn(2)])
    assert metrics.value(EVENTS, "published") == 2
    assert next(answers, None) is None


def turn(n: int = 1) -> TurnStarted:
    """An event."""
    return TurnStarted(schema_version="1.0", id=f"t{n}", time=START, session_id="s1")


def order(id_: str) -> BreakerForceOpen:
    """An operator's order."""
    return BreakerForceOpen(schema_version="1.0", id=id_, time=START.isoformat(), workspace_id="w1", key="tool:t")


def answering(monkeypatch: pytest.MonkeyPatch, *statuses: int) -> list[str]:
    """Let engines answer posts with these statuses, then accept everything; return the bodies that arrive."""
    waiting, came = list(statuses), list[str]()

    def request(client: EngineClient, _method: str, _path: str, body: bytes, **_options: Any) -> bytes:
        came.append(body.decode())
        if waiting and (status := waiting.pop(0)) >= 300:
            raise EngineRefused(f"{client.name} refused ({status}): sign in", status)
        return counts(len(body.split()))

    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(EngineClient, "request", request)
    return came


@pytest.mark.parametrize("status", [301, 302, 307, 401, 404, 407, 408, 421, 429, 503])
def test_a_fault_of_the_way_costs_no_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """A token that is renewed, or a proxy that asks to sign in for a minute: the batch is sent again, as it was.

    The log says it once, with the server's own words.
    """
    came = answering(monkeypatch, status, status, status)
    metrics = GuardMetrics()
    backend = http.HttpBackend("http://127.0.0.1:1", metrics, 10, token="t")
    backend._post("/v1/events", [turn(1), turn(2)])
    assert (len(came), len(set(came)), came[-1].count("\n")) == (4, 1, 1)
    assert (metrics.value(EVENTS, "published"), metrics.value(EVENTS, "refused")) == (2, 0)
    said = [one.message for one in caplog.records]
    assert len(said) == 1
    assert f"refused ({status}): sign in" in said[0]


def test_a_lasting_fault_is_logged_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Every `REPEAT_S` seconds, and at once when it comes back after a delivery."""
    backend = http.HttpBackend("http://127.0.0.1:1", GuardMetrics(), 10, token="t")
    for repeat_s, expected in ((0.0, 3), (60.0, 1), (60.0, 1)):
        monkeypatch.setattr(http, "REPEAT_S", repeat_s)
        answering(monkeypatch, 401, 401, 401)
        backend._post("/v1/events", [turn()])
        assert [one.message.count("events_not_delivered") for one in caplog.records] == [1] * expected
        caplog.clear()


def ids_in(body: bytes) -> list[str]:
    """Ids of the events of a post."""
    return [orjson.loads(line)["id"] for line in body.split()]


@pytest.mark.parametrize("status", [200, 400, 403, 415, 422])
@pytest.mark.parametrize("refused", [{"t0"}, {"t6"}, {"t2", "t3"}, {f"t{n}" for n in range(7)}, {"t1", "t3", "t5"}])
def test_a_firewall_that_refuses_an_events_content_costs_that_event_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int, refused: set[str]
) -> None:
    """The others arrive in their order; the log says with the firewall's words why it was refused."""
    taken = list[str]()

    def request(client: EngineClient, _method: str, _path: str, body: bytes, **_options: Any) -> bytes:
        ids = ids_in(body)
        if refused.intersection(ids):
            if status == 200:
                return b"<html>The requested URL was rejected. Your support ID is 7"
            raise EngineRefused(f"{client.name} refused ({status}): attack detected", status)
        taken.extend(ids)
        return counts(len(ids))

    monkeypatch.setattr(EngineClient, "request", request)
    metrics = GuardMetrics()
    backend = http.HttpBackend("http://127.0.0.1:1", metrics, 10, token="t")
    assert backend._post("/v1/events", [turn(n) for n in range(7)])
    assert taken == [f"t{n}" for n in range(7) if f"t{n}" not in refused]
    assert (metrics.value(EVENTS, "published"), metrics.value(EVENTS, "refused")) == (7 - len(refused), len(refused))
    said = [one.message for one in caplog.records if "events_refused" in one.message]
    assert len(said) == len(refused)
    assert all(("is not `trustfold up`" if status == 200 else "attack detected") in one for one in said)


@pytest.mark.parametrize("status", [400, 403, 415, 422])
@pytest.mark.parametrize("events", [1, 3])
def test_a_proxy_that_refuses_everything_costs_no_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int, events: int
) -> None:
    """Its own credentials, or an address that it has barred: it refuses a body without events as well."""
    came = answering(monkeypatch, *[status] * 6)
    metrics = GuardMetrics()
    backend = http.HttpBackend("http://127.0.0.1:1", metrics, 10, token="t")
    assert backend._post("/v1/events", [turn(n) for n in range(events)])
    assert [len(body.split()) for body in came] == [events, 0] * 3 + [events]
    assert (metrics.value(EVENTS, "published"), metrics.value(EVENTS, "refused")) == (events, 0)
    assert [one.message.count("events_not_delivered") for one in caplog.records] == [1]


@pytest.mark.parametrize("between", [403, 503])
def test_a_proxy_that_changes_its_mind_costs_no_event(monkeypatch: pytest.MonkeyPatch, between: int) -> None:
    """It refuses an event, then lets an empty body pass: the event is sent once more before it is given up."""
    came = answering(monkeypatch, 403, 200, between, 503)
    metrics = GuardMetrics()
    backend = http.HttpBackend("http://127.0.0.1:1", metrics, 10, token="t")
    backend._post("/v1/events", [turn()])
    assert metrics.value(EVENTS, "published") == 1
    assert came[-1] == came[0]


@pytest.mark.parametrize(
    ("own_token", "statuses"), [("o", [401]), ("o", [403, 403]), ("", [403, 403]), ("o", [422] * 2)]
)
def test_orders_that_their_sender_may_not_give_are_not_repeated(
    monkeypatch: pytest.MonkeyPatch, own_token: str, statuses: list[int]
) -> None:
    """None of them: events do not wait for orders."""
    monkeypatch.setenv("TRUSTFOLD_OPERATOR_TOKEN", own_token)
    came = answering(monkeypatch, *statuses)
    metrics = GuardMetrics()
    backend = http.HttpBackend("http://127.0.0.1:1", metrics, 10, token="t")
    backend._post("/v1/commands", [order("o1"), order("o2")])
    assert (len(came), metrics.value(EVENTS, "refused")) == (len(statuses), 2)


@pytest.mark.parametrize("too_large", [2, 3, 6])
def test_events_that_are_too_large_together_are_sent_in_pieces(monkeypatch: pytest.MonkeyPatch, too_large: int) -> None:
    """Each in its order and once; an event that is too large alone costs none of its neighbours."""
    taken = list[str]()

    def request(_client: EngineClient, _method: str, _path: str, body: bytes, **_options: Any) -> bytes:
        ids = ids_in(body)
        if len(ids) >= too_large or "t4" in ids:
            raise EngineRefused("refused (413): send it in pieces", 413)
        taken.extend(ids)
        return counts(len(ids))

    monkeypatch.setattr(EngineClient, "request", request)
    metrics = GuardMetrics()
    backend = http.HttpBackend("http://127.0.0.1:1", metrics, 10, token="t")
    backend._post("/v1/events", [turn(n) for n in range(7)])
    assert taken == ["t0", "t1", "t2", "t3", "t5", "t6"]
    assert (metrics.value(EVENTS, "published"), metrics.value(EVENTS, "refused")) == (6, 1)


async def test_an_event_that_cannot_be_encoded_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the guard closes before its neighbours are delivered."""

    def encode(one: Any, metrics: GuardMetrics) -> bytes | None:
        return base.encoded(object() if one.id == "t1" else one, metrics)  # type: ignore[arg-type]

    monkeypatch.setattr(http, "encoded", encode)
    backend, metrics = away(monkeypatch, turn(1), turn(2))
    await backend.start(0)
    await backend.close()
    assert ended(metrics) == {"refused": 1, "undelivered": 1}


def away(monkeypatch: pytest.MonkeyPatch, *events: TurnStarted) -> tuple[http.HttpBackend, GuardMetrics]:
    """A backend with buffered events, where nothing answers yet; pauses are as long as a test can be."""
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 600.0)
    metrics = GuardMetrics()
    backend = http.HttpBackend("http://127.0.0.1:1", metrics, 10, token="t")
    for event in events:
        backend.publish(event)
    return backend, metrics


def ended(metrics: GuardMetrics) -> dict[str, int]:
    """Number of events by what became of them."""
    results = ("published", "dropped", "refused", "undelivered")
    return {result: int(count) for result in results if (count := metrics.value(EVENTS, result))}


@pytest.mark.parametrize("answers", [True, False])
async def test_closing_without_a_connection_tries_once(monkeypatch: pytest.MonkeyPatch, *, answers: bool) -> None:
    """An engine that is back by then gets everything; a pause between two attempts is cut short."""
    failed, closing = threading.Event(), threading.Event()

    def request(_client: EngineClient, method: str, _path: str, body: bytes = b"", **_options: Any) -> bytes:
        if method == "GET" or not (closing.is_set() and answers):
            if method == "POST":
                failed.set()
            raise TargetUnreachable("nothing answers")
        return counts(len(body.split()))

    monkeypatch.setattr(EngineClient, "request", request)
    backend, metrics = away(monkeypatch, turn(1), turn(2))
    await backend.start(0)
    assert await asyncio.to_thread(failed.wait, 20)
    assert not backend.connected
    closing.set()
    await backend.close()
    assert ended(metrics) == ({"published": 2} if answers else {"undelivered": 2})


@pytest.mark.parametrize("late", [200, 403, 503])
async def test_a_server_slower_than_the_close_is_counted_once(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    """Events answered before the close are published, all others undelivered, even if the answer comes later."""
    asked, answer = threading.Event(), threading.Event()

    def request(_client: EngineClient, method: str, _path: str, body: bytes = b"", **_options: Any) -> bytes:
        if method == "GET":
            raise TargetUnreachable("nothing answers")
        if "t2" in (ids := ids_in(body)) and len(ids) == 1:
            asked.set()
            answer.wait(60)
            if late >= 300:
                raise EngineRefused("too late", late)
        elif len(ids) > 1:
            raise EngineRefused("send it in pieces", 413)
        return counts(len(ids))

    monkeypatch.setattr(EngineClient, "request", request)
    monkeypatch.setattr(http, "CLOSE_S", 0.1)
    backend, metrics = away(monkeypatch, turn(1), turn(2), turn(3))
    await backend.start(0)
    assert await asyncio.to_thread(asked.wait, 20)
    backend.publish(turn(4))
    await backend.close()
    at_close = ended(metrics)
    answer.set()
    for thread in backend._threads:
        await asyncio.to_thread(thread.join, 20)
    assert ended(metrics) == at_close == {"published": 1, "undelivered": 3}


async def test_events_after_the_close_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As dropped, and said once; a child process of a closed guard does not begin anew."""
    backend, metrics = away(monkeypatch)
    await backend.start(0)
    await backend.close()
    for n in range(3):
        backend.publish(turn(n))
    assert (ended(metrics), backend.undelivered, backend.buffer.dropped) == ({"dropped": 3}, 0, 3)
    assert [one.message for one in caplog.records if "after the guard was closed" in one.message] == [
        '{"event":"events_dropped","why":"published after the guard was closed"}'
    ]
    backend.after_fork()
    backend.publish(turn())
    assert (ended(metrics), backend._threads) == ({"dropped": 4}, [])


def test_white_space_around_a_token_is_no_part_of_it(server: Any) -> None:
    """Files of secrets end with a line break."""
    direct(server).request("GET", "/state", token=" secret\n")
    assert server.seen[-1][2] == "Bearer secret"
    assert EnvironmentSettings.from_env({"TRUSTFOLD_TOKEN": "secret\n"}).token == "secret"


@pytest.mark.parametrize("token", ["one-secret\ntwo", "secret€", "secr\x00et"])
def test_a_token_that_no_header_carries_is_refused_without_showing_it(
    server: Any, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """When a guard is made, not in the thread that delivers its events."""
    with pytest.raises(ConfigError, match="ASCII in one line") as raised:
        direct(server).request("GET", "/state", token=token)
    assert "secr" not in str(raised.value)
    with pytest.raises(ConfigError, match="ASCII in one line"):
        http.HttpBackend("http://127.0.0.1:1", GuardMetrics(), 10, token=token)
    monkeypatch.setattr(http.os, "environ", {"TRUSTFOLD_OPERATOR_TOKEN": token})
    with pytest.raises(ConfigError, match="TRUSTFOLD_OPERATOR_TOKEN"):
        http.HttpBackend("http://127.0.0.1:1", GuardMetrics(), 10, token="t")


@pytest.mark.parametrize(("own_token", "sent"), [("", 2), ("another", 1)])
def test_events_do_not_wait_for_orders_whose_token_is_wrong(
    monkeypatch: pytest.MonkeyPatch, own_token: str, sent: int
) -> None:
    """Unless it is the token of the events, too."""
    monkeypatch.setenv("TRUSTFOLD_OPERATOR_TOKEN", own_token)
    came = answering(monkeypatch, 401)
    backend = http.HttpBackend("http://127.0.0.1:1", GuardMetrics(), 10, token="t")
    backend._post("/v1/commands", [order("o1")])
    assert len(came) == sent


async def test_closing_while_the_token_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not wait out the pause before the next attempt, and counts every event that was not delivered."""
    asked = threading.Event()

    def request(*_args: Any, **_options: Any) -> bytes:
        asked.set()
        raise EngineRefused("refused (401)", 401)

    monkeypatch.setattr(EngineClient, "request", request)
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 600.0)
    metrics = GuardMetrics()
    backend = http.HttpBackend("http://127.0.0.1:1", metrics, 3, token="t")
    for n in range(5):
        backend.publish(turn(n))
    await backend.start(0)
    assert await asyncio.to_thread(asked.wait, 20)
    while not any("events_not_delivered" in one.message for one in caplog.records):  # noqa: ASYNC110 - a log line
        await asyncio.sleep(0.01)
    await backend.close()
    assert not any(thread.is_alive() for thread in backend._threads)
    assert (metrics.value(EVENTS, "dropped"), metrics.value(EVENTS, "undelivered")) == (2, 3)


def test_a_state_that_ended_while_the_guard_was_away_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision stream tells what changes; what went back to its default in between is absent from the states."""
    state = {
        "type": "state.updated", "kind": "breaker", "key": "tool:fetch", "scope": "tool", "workspace_id": "w1",
        "state": "open", "schema_version": "1.0", "id": "x", "time": "2026-01-05T10:00:00Z",
    }  # fmt: skip
    answers = iter([[state], []])
    monkeypatch.setattr(
        EngineClient, "request", lambda *_, **_options: orjson.dumps({"states": next(answers), "offset": 7})
    )
    backend = http.HttpBackend("http://127.0.0.1:1", GuardMetrics(), 10)
    assert backend._read_states() == 7
    assert len(backend.view.keys()) == 1
    backend._read_states()
    assert len(backend.view.keys()) == 0


def test_a_fork_leaves_what_its_parent_is_delivering() -> None:
    """The child neither sends it nor waits for it."""
    backend = http.HttpBackend("http://127.0.0.1:1", GuardMetrics(), 10)
    backend.publish(turn())
    backend._under_way = 3
    assert backend.undelivered == 4
    backend.after_fork()
    assert backend.undelivered == 0

"""Fuzz: whatever a stranger sends to our doors, there is no fault of ours, no 500 and no hang.

A short run by default; `make fuzz` sets TRUSTFOLD_FUZZ to the number of inputs for each door.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from trustfold.cli.publish import _lines
from trustfold.cli.publish import bodies as whole_records
from trustfold.cli.replay import damaged
from trustfold.cli.setting_levels import NAMES
from trustfold.cli.setting_levels import settings as saved
from trustfold.config import load_rules
from trustfold.errors import ConfigError, TrustfoldError
from trustfold.guard.otel.receiver import otlp_app
from trustfold.guard.request import is_name
from trustfold.guard.testing import guard_for_tests
from trustfold.ingest import IMPORTERS, LogDefaults, SkippedLines, objects_of, recognised
from trustfold.schemas.examples import EXAMPLES
from trustfold.security.redaction import redact, redact_record, redact_text
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.server import make_app
from trustfold.streams.embedded.sign_in import RoleTokens
from trustfold.streams.kafka.engine import WorkerEngine
from trustfold.streams.kafka.health import probe_of
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.metrics import LaneMetrics
from trustfold.streams.kafka.stages import KafkaTopology
from trustfold.streams.probe_server import ProbeServer
from trustfold.web.routes import more_routes

EXAMPLES_EACH = int(os.environ.get("TRUSTFOLD_FUZZ", "60"))
FUZZ = settings(
    max_examples=EXAMPLES_EACH,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
PATHS = (
    *("/v1/events", "/v1/commands", "/v1/settings", "/v1/reload", "/v1/decisions", "/v1/state", "/v1/dead-letters"),
    *("/v1/dead-letters/republish", "/v1/check", "/v1/traces", "/v1/logs", "/healthz", "/"),
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def altered(draw: st.DrawFn) -> dict[str, Any]:
    """A good record, but for some fields."""
    example = EXAMPLES[draw(st.sampled_from(sorted(EXAMPLES)))]
    return example | draw(st.dictionaries(st.sampled_from([*example, "args", "result"]), anything, max_size=3))


def as_json(value: Any) -> bytes:
    """JSON, as far as orjson writes it."""
    with contextlib.suppress(TypeError, orjson.JSONEncodeError):
        return orjson.dumps(value)
    return repr(value).encode(errors="replace")


bodies = st.binary(max_size=200) | anything.map(as_json) | st.lists(altered().map(as_json), max_size=3).map(b"\n".join)


@pytest.fixture(scope="module")
def server() -> Any:
    """A server that takes orders, in this process."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "store.sqlite")
        app = make_app(EmbeddedEngine.open(path), path, roles=RoleTokens(local_orders=True), more=more_routes)
        with TestClient(app, base_url="http://127.0.0.1:8321", raise_server_exceptions=True) as client:
            yield client


@FUZZ
@given(
    method=st.sampled_from(["GET", "POST", "PUT"]), path=st.sampled_from(PATHS), body=bodies,
    kind=st.sampled_from(["application/json", "application/x-ndjson", "text/plain", ""]),
    coding=st.sampled_from(["", "gzip", "br"]),
    query=st.dictionaries(st.sampled_from("after limit topics all session".split()), st.text(max_size=25), max_size=3),
)  # fmt: skip
def test_the_http_server(server: Any, method: str, path: str, body: bytes, kind: str, coding: str, query: Any) -> None:
    """Every path with any body and query: an answer, and no 5xx."""
    headers = {"content-type": kind} | ({"content-encoding": coding} if coding else {})
    answer = server.request(method, path, content=body, headers=headers, params=query)
    assert answer.status_code < 500, answer.text


attribute = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["gen_ai.operation.name", "gen_ai.tool.name", "http.response.status_code"]),
        "value": st.sampled_from([{"stringValue": "execute_tool"}, {"intValue": "7"}]) | anything,
    }
)
names = ("name", "startTimeUnixNano", "endTimeUnixNano", "status", "events")
span = st.fixed_dictionaries(
    {"traceId": anything, "spanId": anything},
    optional=dict.fromkeys(names, anything) | {"attributes": st.lists(attribute, max_size=3) | anything},
)
exports = span.map(lambda one: as_json({"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}))


@FUZZ
@given(body=bodies | exports, kind=st.sampled_from(["application/json", "application/x-protobuf", "text/plain"]))
def test_the_otlp_receiver(body: bytes, kind: str) -> None:
    """Any body: an answer, and no 5xx."""
    answer = TestClient(otlp_app(GUARD), base_url="http://127.0.0.1").post(
        "/v1/traces", content=body, headers={"content-type": kind}
    )
    assert answer.status_code < 500, answer.text


GUARD = guard_for_tests()


@FUZZ
@given(text=st.binary(max_size=200) | anything.map(as_json), suffix=st.sampled_from([".toml", ".json"]))
def test_rule_files(text: bytes, suffix: str) -> None:
    """A file of rules is taken, or refused in words."""
    with TemporaryDirectory() as folder:
        file = Path(folder, f"rules{suffix}")
        file.write_bytes(text)
        with contextlib.suppress(ConfigError):
            load_rules(file)


@FUZZ
@given(lines=st.lists(bodies, max_size=4), origin=st.sampled_from(sorted(IMPORTERS)))
def test_importers(lines: list[bytes], origin: str) -> None:
    """Lines of any kind are read, or passed over."""
    with contextlib.suppress(ConfigError):
        list(IMPORTERS[origin](iter(lines), LogDefaults()))
    with contextlib.suppress(ConfigError):
        recognised(objects_of(lines, "f", SkippedLines()))


@FUZZ
@given(value=anything, text=st.text(max_size=80), raw=bodies)
def test_redaction(value: Any, text: str, raw: bytes) -> None:
    """Anything can be redacted; what is clean stays clean."""
    redact(value)
    assert redact_text(redact_text(text)) == redact_text(text)
    assert redact_record(redact_record(raw)) == redact_record(raw)


names_of_anything = st.sampled_from(["fetch", "", "x" * 300, "service:x", "a\x00b", "\ud800"]) | anything


@FUZZ
@given(
    tool=names_of_anything, args=anything, session=st.sampled_from(["s1", "", "a\x1fb", "\udfff"]) | anything,
    options=st.dictionaries(
        st.sampled_from("idempotency_key scenario cost_usd timeout_ms model user_id turn_index".split()), anything,
        max_size=3,
    ),
    result=anything,
)  # fmt: skip
def test_the_guards_calls(tool: Any, args: Any, session: Any, options: Any, result: Any) -> None:
    """A call with any name, arguments and options ends in a result; a report is taken or counted as refused."""

    async def work() -> None:
        guard = guard_for_tests()
        done = await guard.call(tool, lambda *_, **__: result, args, session_id=session, **options)
        assert done.ok or done.error is not None
        for told in (result, repr(session), ValueError(result)):
            assert guard.report_failure(tool, told, session_id=session, context=args) in {True, False}
        named = is_name(tool) and (session is None or session == "" or is_name(session))
        assert guard.report_success(tool, session_id=session, domain=result) == named
        checked = guard.check(tool, args, session_id=session)
        assert checked.allowed or checked.message
        guard.trust_of(tool, args if isinstance(args, dict) else {})
        guard.on_permission_resolved(tool, session, granted=True, method=result)
        await guard.close()

    asyncio.run(work())


@pytest.fixture(scope="module")
def probed() -> Iterator[tuple[tuple[str, int], list[BaseException]]]:
    """Address of a worker's health server, and what its threads have raised."""
    worker = WorkerEngine(KafkaSettings(), None, KafkaTopology((), lambda *_: None), LaneMetrics())
    server = ProbeServer(probe_of(worker), "127.0.0.1", 0)
    raised: list[BaseException] = []
    server._server.handle_error = lambda *_: raised.append(sys.exc_info()[1])
    yield server._server.server_address, raised
    server.close()


heads = st.builds(
    lambda method, path, version, names: f"{method} {path} {version}\r\n{names}\r\n".encode(errors="replace"),
    st.sampled_from(["GET", "POST", "", "get"]),
    st.sampled_from(["/healthz", "/metrics", "/readyz?x", "//", "*"]) | st.text(max_size=20),
    st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "", "HTTP/1.x"]),
    st.dictionaries(
        st.sampled_from(["Host", "Origin", "Content-Length", "X"]),
        st.sampled_from(["127.0.0.1:1", "[::1", "http://[", "-1", "null"]) | st.text(max_size=12),
        max_size=3,
    ).map(lambda fields: "".join(f"{name}: {value}\r\n" for name, value in fields.items())),
)


@FUZZ
@given(sent=st.binary(max_size=200) | heads)
def test_the_health_port_of_a_worker(probed: Any, sent: bytes) -> None:
    """Any bytes: an answer or none, and no fault in the thread that serves them."""
    address, raised = probed
    with socket.create_connection(address, timeout=60) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass
    assert [one for one in raised if not isinstance(one, ConnectionError)] == []


@FUZZ
@given(
    content=bodies, packed=st.booleans(), cut=st.integers(0, 40), suffix=st.sampled_from(["", ".gz", ".zst", ".json"])
)
def test_files_to_publish(content: bytes, packed: bool, cut: int, suffix: str) -> None:
    """A file is sent line by line and nothing of it is lost, or refused in words."""
    raw = gzip.compress(content) if packed else content
    with TemporaryDirectory() as folder:
        file = Path(folder, f"day{suffix}")
        file.write_bytes(raw[: len(raw) - cut] if cut < 20 else raw)
        with contextlib.suppress(TrustfoldError), damaged():
            lines = list(_lines((str(file),)))
            assert b"\n".join(whole_records(lines)) == b"\n".join(lines)


@FUZZ
@given(
    verb=st.sampled_from(["save", "clear"]), level=st.sampled_from(["user", "workspace", "session", ""]),
    name=st.sampled_from(NAMES) | st.text(max_size=8),
    value=anything.map(as_json).map(bytes.decode) | st.text(max_size=20),
    who=st.sampled_from(["ann", "", "x" * 300, "a\x1fb"]) | st.text(max_size=8),
)  # fmt: skip
def test_settings_of_a_level(server_file: Path, verb: str, level: str, name: str, value: str, who: str) -> None:
    """A setting is saved or cleared, or refused in words."""
    pair = f"{name}={value}" if verb == "save" else name
    words = [verb, level, pair, "--store", str(server_file), "--user", who, "--workspace", who, "--json"]
    with contextlib.suppress(TrustfoldError, click.ClickException, click.exceptions.Exit, click.Abort):
        saved.main(words, standalone_mode=False)


@pytest.fixture(scope="module")
def server_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nobody has open."""
    path = tmp_path_factory.mktemp("settings") / "store.sqlite"
    EmbeddedEngine.open(path).close()
    return path

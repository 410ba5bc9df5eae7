"""Large bodies are read beside the event loop, so that checks and hooks are answered meanwhile."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from fixed_rules import Rules
from starlette.testclient import TestClient
from trustfold.guard.request import GuardedCall
from trustfold.schemas.codec import MAX_BYTES
from trustfold.streams.embedded import server as server_module
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.server import make_app
from trustfold.web import check as check_module
from trustfold.web.routes import more_routes

LINE = b"x" * 9_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TestClient]:
    """A server in this process."""
    path = tmp_path / "store.sqlite"
    app = make_app(EmbeddedEngine.open(path, Rules()), path, more=more_routes)
    with TestClient(app, base_url="http://127.0.0.1:8321") as client:
        yield client


@pytest.fixture
def loops(server: TestClient, monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The thread of the event loop, as seen by a request."""
    found: list[threading.Thread] = []
    health = server_module._counts

    def counts(receipt: Any) -> dict[str, Any]:
        found.append(threading.current_thread())
        return health(receipt)

    monkeypatch.setattr(server_module, "_counts", counts)
    server.post("/v1/events", content=b"{}")
    return found


def noted(function: Callable[..., Any], seen: list[threading.Thread]) -> Callable[..., Any]:
    """The function, which notes the threads that call it."""

    def call(*arguments: Any, **options: Any) -> Any:
        seen.append(threading.current_thread())
        return function(*arguments, **options)

    return call


@pytest.mark.parametrize("content", [LINE, gzip.compress(LINE)], ids=["plain", "gzip"])
def test_a_large_body_is_hashed_and_split_in_a_thread(
    server: TestClient, loops: list[threading.Thread], monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """Whatever its size on the wire."""
    seen: list[threading.Thread] = []
    monkeypatch.setattr(server_module, "blake2b", noted(server_module.blake2b, seen))
    monkeypatch.setattr(server_module, "records_of", noted(server_module.records_of, seen))
    headers = {"Content-Encoding": "gzip"} if content is not LINE else {}
    assert server.post("/v1/events", content=content, headers=headers).json()["dead_letters"] == 1
    assert len(seen) == 2
    assert loops[0] not in seen


def test_a_large_call_is_read_in_a_thread(
    server: TestClient, loops: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its secrets and its command line are looked for there, before a check and before a hook is answered."""
    seen: list[threading.Thread] = []
    monkeypatch.setattr(check_module, "redact_record", noted(check_module.redact_record, seen))
    read: Callable[[GuardedCall], Any] = GuardedCall.trust_keys.fget  # type: ignore[attr-defined] # a property
    monkeypatch.setattr(GuardedCall, "trust_keys", property(noted(read, seen)))
    call = {"tool_name": "Bash", "args": {"command": "echo " + LINE.decode()}}
    assert server.post("/v1/check", json=call).json()["allowed"] is True
    assert loops[0] not in seen[:2]
    seen.clear()
    hook = {"hook_event_name": "PreToolUse", "session_id": "s", "cwd": "/", "tool_name": "Bash"}
    server.post("/hooks/claude", json=hook | {"tool_input": call["args"]})
    assert loops[0] not in seen[:1]
    assert seen


def test_a_call_larger_than_any_event_is_not_checked(server: TestClient) -> None:
    """It could not be published either."""
    body = orjson.dumps({"tool_name": "Bash", "args": {"command": "x" * MAX_BYTES}})
    assert server.post("/v1/check", content=body).status_code == 413

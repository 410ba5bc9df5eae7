"""HTTP server of the embedded engine (extra `web`).

    POST /v1/events       NDJSON, or one JSON object  ->  {"accepted": 2, "dead_letters": 0}
    POST /v1/commands     the same, for operators; answers with the decisions too
    POST /v1/settings     what a user or a workspace overrides, whole; an empty record clears it
    GET  /v1/settings     ?workspace=ID&user=ID&session=ID  ->  every setting with its source, and what each level sets
    POST /v1/reload       read the files of rules and policies again
    GET  /v1/decisions    ?after=OFFSET&topics=nudges,escalations&limit=1000&follow=true&session=ID
                          NDJSON, or server-sent events for whoever accepts `text/event-stream`; with `session` only
                          what is about that session, or was caused in it
    GET  /v1/state        every key that is away from its default
    GET  /v1/dead-letters ?after=OFFSET&limit=1000&all=true
    POST /v1/dead-letters/republish   {"offsets": [7, 9]}
    GET  /v1/server       which installation runs, over which store, since when
    GET  /healthz

A POST is answered after the commit. A body sent again byte for byte gets the first answer, so a publisher without an
answer may simply repeat it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from ... import __version__
from ...config import INSTALLATION, RuleFiles
from ...errors import ConfigError, TrustfoldError
from ...projections.topology import DECISION_TOPICS
from ...rules.levels import Levels, set_by, table
from ...rules.rules import RuleSet
from ...schemas.codec import MAX_BYTES, rfc3339
from ...schemas.outcomes import DEFAULT_WORKSPACE
from .engine import CommitReceipt, EmbeddedEngine, SubmitRequest
from .roles import NOBODY, AccessMiddleware
from .sign_in import RoleTokens, SignIns
from .store_views import DEAD_LETTERS, StoredOutput, StoreViews, session_of
from .writer import EngineWriter, WriterBusy

T = TypeVar("T")

# Topics that can be followed; `events` holds those the engine appended itself
TOPICS = (*DECISION_TOPICS, "state", DEAD_LETTERS, "events")

# Seconds of silence after which a follower gets a heartbeat, below the idle limits of common proxies
HEARTBEAT_S = 15.0

LOOKED_THROUGH = 2_000  # Outputs read at once when filtering by session; other readers run in between
BODY_S = 30.0  # Seconds within which a body must arrive: 16 MiB in half a minute is 4 Mbit/s

# Largest decompressed body in bytes; one body is one transaction. Larger files are sent in pieces.
MAX_BODY_BYTES = 16 * 1024 * 1024

MAX_RECORDS = 100_000  # Largest number of records in a body

# Size of a body up to which it is read at once; larger ones are read in a thread, and nobody else waits for that
QUICK_BYTES = 4 * 1024

UNPACKED_AT_ONCE = 256 * 1024  # Bytes that are decompressed before other requests get their turn
MAX_FAULTS = 10  # Largest number of faults in one answer; all of them are dead letters


class EmbeddedService:
    """State shared by the routes: the writer, readers of the store, and the stop flag.

    Attributes:
        path: file of the store.
        since_ms: when the service was created, milliseconds since the epoch.
        sign_ins: cookies of browsers.
        beside: coroutine functions that run while the server does.
        ending: called once before the streams end and the writer stops.
        read: runs a query of `StoreViews` by its name, concurrently with the writer.
        search: as `read`, for queries that may scan the whole store: on its own thread, so that `read` does not wait.
        collectors: further metrics of this process, as prometheus-client collectors.
        error_page: renders an error for browsers; None for programs, which get JSON.
    """

    def __init__(
        self, engine: EmbeddedEngine, path: Path, files: RuleFiles | None = None, roles: RoleTokens = NOBODY
    ) -> None:
        """Serve an engine over the store at `path`; its rules come from `files`, browsers sign in with `roles`."""
        self.sign_ins = SignIns(roles)
        self.writer = EngineWriter(engine, files)
        self.stopping = False
        self.beside: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self.ending: list[Callable[[], None]] = []
        self.collectors: list[Any] = []
        self.error_page: Callable[[HttpRequest, HTTPException], Response | None] = lambda _request, _error: None
        self.path = path
        self.since_ms = time.time_ns() // 1_000_000
        self._reader, self._searcher = _StoreReader(path, "trustfold-reader"), _StoreReader(path, "trustfold-searcher")
        self.read, self.search = self._reader.run, self._searcher.run

    def stop_following(self) -> None:
        """End the open streams so that the server can stop."""
        self.stopping = True
        while self.ending:
            self.ending.pop()()
        self.writer.wake()

    async def follow(self, topics: list[str], after: int, session: str = "") -> AsyncIterator[list[StoredOutput]]:
        """Yield pages of outputs as they are committed, of all sessions or of one; an empty page is a heartbeat."""
        while not self.stopping:
            signal = self.writer.signal()
            page: list[StoredOutput] = await self.read("decisions", topics, after=after, limit=500)
            if page:
                after = page[-1].offset
                if wanted := [one for one in page if _is_of(one, session)]:
                    yield wanted
                continue
            try:
                await asyncio.wait_for(signal.wait(), HEARTBEAT_S)
            except TimeoutError:
                yield []

    async def decisions(self, topics: list[str], after: int, limit: int, session: str) -> list[StoredOutput]:
        """Return outputs after an offset, oldest first, at most `limit`: those of one session, else of all."""
        found: list[StoredOutput] = []
        while len(found) < limit:
            page = await self.read("decisions", topics, after=after, limit=LOOKED_THROUGH if session else limit)
            found += [one for one in page if _is_of(one, session)]
            if not session or not page:
                break
            after = page[-1].offset
        return found[:limit]

    async def close(self) -> None:
        """Finish pending requests and close the store."""
        await self.writer.stop()
        self._reader.close()
        self._searcher.close()


class _StoreReader:
    """Thread with its own connection to the store."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._views: StoreViews | None = None

    async def run(self, query: str, *arguments: Any, **options: Any) -> Any:
        def run() -> Any:
            if self._views is None:
                self._views = StoreViews.open(self._path)
            return getattr(self._views, query)(*arguments, **options)

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def close(self) -> None:
        self._thread.shutdown()
        if self._views is not None:
            self._views.close()


def make_app(
    engine: EmbeddedEngine,
    path: str | Path,
    *,
    roles: RoleTokens = NOBODY,
    files: RuleFiles | None = None,
    more: Callable[[EmbeddedService], Sequence[BaseRoute]] = lambda _service: (),
) -> Starlette:
    """Create the application; it closes its engine when it stops. `app.state.service` is the `EmbeddedService`.

    `files` are watched: changed rules take effect between two batches. `more` adds routes behind the same checks of
    host, origin and token.
    """
    service = EmbeddedService(engine, Path(path), files, roles)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        service.writer.start()
        tasks = [asyncio.create_task(run()) for run in service.beside]
        yield
        service.stop_following()
        for task in tasks:
            task.cancel()
        await service.close()

    app = Starlette(
        routes=[
            Route("/v1/events", _post_events, methods=["POST"]),
            Route("/v1/commands", _post_commands, methods=["POST"]),
            Route("/v1/settings", _post_settings, methods=["POST"]),
            Route("/v1/settings", _get_settings),
            Route("/v1/reload", _reload, methods=["POST"]),
            Route("/v1/decisions", _get_decisions),
            Route("/v1/state", _get_state),
            Route("/v1/dead-letters", _get_dead_letters),
            Route("/v1/dead-letters/republish", _republish, methods=["POST"]),
            Route("/v1/server", _get_server),
            Route("/healthz", _health),
            *more(service),
        ],
        middleware=[Middleware(AccessMiddleware, roles=roles, sign_ins=service.sign_ins)],
        exception_handlers={HTTPException: _http_error, TrustfoldError: _our_error},
        lifespan=lifespan,
    )
    app.state.service = service
    app.state.end_streams = service.stop_following
    return app


async def _post_events(request: HttpRequest) -> Response:
    receipt = await _submit(request, "events")
    return _json(_counts(receipt))


async def _post_commands(request: HttpRequest) -> Response:
    receipt = await _submit(request, "commands")
    decisions = [
        orjson.Fragment(output.value) for output in receipt.outputs if output.topic in DECISION_TOPICS and output.value
    ]
    return _json(_counts(receipt) | {"decisions": decisions})


async def _post_settings(request: HttpRequest) -> Response:
    return _json(_counts(await _submit(request, "settings")))


async def _get_settings(request: HttpRequest) -> Response:
    service = _service(request)
    chosen = request.query_params.get
    own = await service.read("session", chosen("session", ""))
    source = service.writer.engine.source
    workspace = chosen("workspace") or DEFAULT_WORKSPACE
    levels = await service.writer.call(source.levels, workspace, chosen("user", ""), own)
    return _json(settings_document(source.base, levels) | {"rules_fault": service.writer.reloader.fault})


def settings_document(base: RuleSet, levels: Levels) -> dict[str, Any]:
    """Return every setting with its source, the overrides of each level, and the overridden rules."""
    return {
        "settings": [{"setting": name, "value": value, "source": level} for name, value, level in table(base, levels)],
        "levels": {str(level): set_by(overrides) for level, overrides in levels.items()},
        "rules": msgspec.to_builtins(base),
    }


async def _reload(request: HttpRequest) -> Response:
    writer = _service(request).writer
    taken = await writer.call(partial(writer.reloader.look, anyway=True))
    return _json({"reloaded": taken, "files": writer.reloader.paths, "rules_fault": writer.reloader.fault})


async def _submit(request: HttpRequest, topic: str) -> CommitReceipt:
    body = await read_body(request)
    values, token = await unhindered(_read, body, request.headers.get("content-type", ""), topic)
    sender = request.state.publisher if topic == "events" else None
    receipt: CommitReceipt = await _service(request).writer.submit(SubmitRequest(topic, values, token, sender))
    return receipt


def _read(body: bytes, content_type: str, topic: str) -> tuple[list[bytes], bytes]:
    """Return the records of a body and its token."""
    values = records_of(body, content_type)
    return values, blake2b(body, digest_size=16, person=topic.encode()).digest() if values else b""


async def unhindered(function: Callable[..., T], body: bytes, *arguments: Any) -> T:
    """Run a function over a body, a large one in a thread."""
    if len(body) <= QUICK_BYTES:
        return function(body, *arguments)
    return await asyncio.to_thread(function, body, *arguments)


async def read_body(request: HttpRequest) -> bytes:
    """Return the decompressed body."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "gzip"}:
        raise HTTPException(415, f"content-encoding {encoding!r} is unknown; send gzip, or none")
    unpack = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    body = bytearray()
    stream = aiter(request.stream())
    until = asyncio.get_running_loop().time() + BODY_S
    while True:
        try:
            async with asyncio.timeout_at(until):
                chunk = await anext(stream)
        except StopAsyncIteration:
            break
        except TimeoutError as late:
            raise HTTPException(408, f"the body did not arrive within {BODY_S:.0f} s; send it again") from late
        try:
            if unpack is None:
                body += chunk
            while unpack is not None and chunk and len(body) <= MAX_BODY_BYTES:
                body += unpack.decompress(chunk, UNPACKED_AT_ONCE)
                chunk = unpack.unconsumed_tail
                await asyncio.sleep(0)
        except zlib.error as error:
            raise HTTPException(400, f"the body is not gzip: {error}") from error
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"larger than {MAX_BODY_BYTES >> 20} MiB; send it in pieces")
    if unpack is not None and not unpack.eof:
        raise HTTPException(400, "the gzip body ends early; send it again")
    return bytes(body)


def records_of(body: bytes, content_type: str) -> list[bytes]:
    """Split a body into records: one per line, or, declared as `application/json`, one object over several lines.

    Larger than any record may be, it is not parsed as one object: that holds the interpreter.
    """
    if len(body) <= MAX_BYTES and content_type.partition(";")[0].strip().lower() == "application/json":
        with contextlib.suppress(orjson.JSONDecodeError):
            orjson.loads(body)
            return [body.strip()]
    if body.count(b"\n") > MAX_RECORDS:
        raise HTTPException(413, f"more than {MAX_RECORDS} lines; send them in pieces")
    return [line for line in map(bytes.strip, body.split(b"\n")) if line]


def _counts(receipt: CommitReceipt) -> dict[str, Any]:
    counts: dict[str, Any] = {"accepted": receipt.accepted, "dead_letters": receipt.dead_letters}
    if receipt.repeated:
        counts["repeated"] = True
    letters = (out.value for out in receipt.outputs if out.topic == DEAD_LETTERS and out.value)
    faults = [orjson.loads(value) for value in islice(letters, MAX_FAULTS)]
    if faults:
        counts["faults"] = [{name: one[name] for name in ("reason", "path", "message")} for one in faults]
    return counts


async def _get_decisions(request: HttpRequest) -> Response:
    service = _service(request)
    topics = [name for name in request.query_params.get("topics", "").split(",") if name] or list(DECISION_TOPICS)
    unknown = sorted(set(topics) - set(TOPICS))
    if unknown:
        raise ConfigError(f"unknown topics: {', '.join(unknown)}; choose from {', '.join(TOPICS)}")
    events = "text/event-stream" in request.headers.get("accept", "")
    after, session = _whole(request, "after", 0), request.query_params.get("session", "")
    if events and "last-event-id" in request.headers:
        after = _number("last-event-id", request.headers["last-event-id"])
    render = _sse if events else _ndjson
    media_type = "text/event-stream" if events else "application/x-ndjson"
    if not events and not _flag(request, "follow"):
        page = await service.decisions(topics, after, _whole(request, "limit", 1000), session)
        return Response(render(page), media_type=media_type)

    async def stream() -> AsyncIterator[bytes]:
        async for page in service.follow(topics, after, session):
            yield render(page) or (b":\n\n" if events else b"\n")

    return StreamingResponse(stream(), media_type=media_type, headers={"Cache-Control": "no-store"})


async def _get_state(request: HttpRequest) -> Response:
    service = _service(request)
    offset = await service.read("next_offset") - 1  # read before the states, so that a follower misses nothing
    states = await service.read("states")
    return _json(
        {
            "offset": offset,
            "recovery_mode": service.writer.engine.rules.trust.recovery_mode,
            "rules_fault": service.writer.reloader.fault,
            "states": [orjson.Fragment(value) for value in states.values()],
        }
    )


async def _get_dead_letters(request: HttpRequest) -> Response:
    page = await _service(request).read(
        "dead_letters",
        after=_whole(request, "after", 0),
        limit=_whole(request, "limit", 1000),
        republished=_flag(request, "all"),
    )
    return Response(_ndjson(page), media_type="application/x-ndjson")


async def _republish(request: HttpRequest) -> Response:
    try:
        offsets = orjson.loads(await read_body(request))["offsets"]
        chosen = [offset for offset in map(int, offsets) if 0 <= offset < 1 << 63]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise HTTPException(400, 'send {"offsets": [...]} with offsets of dead letters') from error
    if len(chosen) < len(offsets):
        raise HTTPException(400, "an offset is a whole number below 2**63; `GET /v1/dead-letters` gives them")
    outputs = await _service(request).writer.republish(chosen)
    again = sum(output.topic == DEAD_LETTERS for output in outputs)
    return _json({"republished": len(chosen), "dead_letters": again})


async def _get_server(request: HttpRequest) -> Response:
    service = _service(request)
    return _json(
        {
            "version": __version__,
            "installation": str(INSTALLATION),
            "store": str(service.path.resolve()),
            "since": rfc3339(service.since_ms),
        }
    )


async def _health(request: HttpRequest) -> Response:
    writer = _service(request).writer
    fault = writer.fault
    body: dict[str, Any] = {"status": "ok"} if fault is None else {"status": "failing", "error": fault}
    if counted := writer.engine.counted:
        body["counted"] = counted
    if writer.reloader.fault is not None:
        body["rules_fault"] = writer.reloader.fault  # not a failure: the previous rules stay in force
    return _json(body, 200 if fault is None else 503)


def _http_error(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    return _service(request).error_page(request, error) or _json(
        {"error": error.detail}, error.status_code, error.headers
    )


def _our_error(_request: HttpRequest, error: Exception) -> Response:
    if isinstance(error, ConfigError):
        return _json({"error": str(error)}, 400)
    return _json({"error": str(error)}, 503, {"Retry-After": "1"} if isinstance(error, WriterBusy) else None)


def _service(request: HttpRequest) -> EmbeddedService:
    service: EmbeddedService = request.app.state.service
    return service


def _json(body: object, status: int = 200, headers: Any = None) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json", headers=headers)


def _is_of(one: StoredOutput, session: str) -> bool:
    """Whether a record is about a session, or was caused in it; for an empty session always true."""
    return not session or session_of(one.output.value) == session


def _ndjson(page: list[StoredOutput]) -> bytes:
    """Encode one line each: offset, topic and key around the wire record; null for a tombstone."""
    return b"".join(
        b'{"offset":%d,"topic":%b,"key":%b,"value":%b}\n'
        % (offset, orjson.dumps(output.topic), orjson.dumps(output.key), output.value or b"null")
        for offset, output in page
    )


def _sse(page: list[StoredOutput]) -> bytes:
    """Encode as server-sent events, with the offset as id so that browsers resume automatically."""
    return b"".join(
        b"id: %d\nevent: %b\ndata: %b\n\n" % (offset, (output.type or "tombstone").encode(), line.rstrip(b"\n"))
        for (offset, output), line in ((one, _ndjson([one])) for one in page)
    )


def _whole(request: HttpRequest, name: str, default: int) -> int:
    return _number(name, request.query_params.get(name, str(default)))


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise HTTPException(400, f"{name} must be a whole number, not {text!r}")
    return int(text)


def _flag(request: HttpRequest, name: str) -> bool:
    return request.query_params.get(name, "").lower() in {"1", "true", "yes"}

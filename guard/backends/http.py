"""Backend for one machine: a running `trustfold up`, over HTTP.

Two threads use one client: one posts buffered events, one reads the stream of decisions. A post without an answer is
repeated byte for byte; the engine detects the repetition.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterator
from enum import Enum, auto
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from ...errors import TargetUnreachable, TookTooLong, TrustfoldError
from ...schemas.outcomes import DEFAULT_WORKSPACE, US
from ..log import log_event
from ..metrics import EVENTS, GuardMetrics
from ..publisher import is_event
from ..state_cache import StateView
from .base import FOLLOWED, ChangeSignal, DecisionDispatcher, EventBuffer, apply_record, encoded
from .engine_client import EngineClient, EngineRefused, EngineStream, header_token

if TYPE_CHECKING:
    from .engine_process import EngineThread

BATCH = 1000
TIMEOUT_S = 10.0
# Seconds without a line after which the stream counts as lost; the engine sends a heartbeat every 15 s
SILENCE_S = 40.0

FIRST_PAUSE_S = 0.1
LAST_PAUSE_S = 5.0

REPEAT_S = 60.0  # Seconds after which a lasting fault of the delivery is logged again
CLOSE_S = 5.0  # Seconds that a closing guard delivers buffered events and waits for the answer

EVENTS_PATH, ORDERS_PATH = "/v1/events", "/v1/commands"

NOT_OURS = 200  # Status of an answer that is not an engine's, such as a sign-in page


class _PostCounts(msgspec.Struct):
    """Answer of an engine to a post: number of records folded, and of those put among the dead letters."""

    accepted: int
    dead_letters: int


# Seconds before a post: start and finish of a short call go together, and not while the call is being made
LINGER_S = 0.005


class _PostFault(Enum):
    """Cause of a failed post.

    Attributes:
        WAY: the network, a proxy, the server or the token for everything; the post is repeated.
        SENDER: the operator's token; no order is accepted.
        RECORDS: the content of one of the records.
    """

    WAY = auto()
    SENDER = auto()
    RECORDS = auto()


def _too_large(error: TrustfoldError) -> bool:
    return isinstance(error, EngineRefused) and error.too_large


def record_key(record: dict[str, Any]) -> str:
    """Key of a state on the `state` topic."""
    if record["kind"] == "model" and not record.get("workspace_id"):
        return f"{record['kind']}:{record['key']}"
    of_user = record.get("scope") == "user"
    owner = f"user:{record['user_id']}" if of_user else record.get("workspace_id") or DEFAULT_WORKSPACE
    return f"{record['kind']}:{owner}{US}{record['key']}"


class HttpBackend:
    """HTTP backend of one guard."""

    def __init__(
        self,
        url: str,
        metrics: GuardMetrics,
        limit: int,
        *,
        token: str | None = None,
        engine: EngineThread | None = None,
    ) -> None:
        """Create a backend for the engine at `http://host:port`; an engine started for the guard ends with it.

        Raises:
            ConfigError: the address or a token is malformed.
        """
        self._client = EngineClient(url, TIMEOUT_S)
        self.view = StateView()  # latest public states
        self.decisions = DecisionDispatcher()  # dispatcher of decisions to sessions
        self.buffer = EventBuffer(limit, metrics)  # events to deliver
        self._token = header_token(token if token is not None else os.environ.get("TRUSTFOLD_TOKEN", ""))
        self._operator_token = header_token(os.environ.get("TRUSTFOLD_OPERATOR_TOKEN", ""))
        self._metrics = metrics
        self._engine = engine
        self._changed = ChangeSignal()
        self._work = threading.Condition()
        self._caught_up = threading.Event()
        self._following = self._delivering = False
        self._under_way = 0
        self._reported_at: float | None = None
        self._closing = threading.Event()
        self._given_up = False
        self._stream: EngineStream | None = None
        self._threads: list[threading.Thread] = []
        self._started = False

    def after_fork(self) -> None:
        """Reconnect with the next event; the engine and the buffered events belong to the parent."""
        self.buffer.after_fork()
        self.decisions.after_fork()
        self._client.after_fork()
        self._changed = ChangeSignal()
        self._work = threading.Condition()
        self._caught_up = threading.Event()
        self._following = self._delivering = False
        self._under_way = 0
        self._reported_at = None
        self._started = self._started and not self._closing.is_set()
        self._closing = threading.Event()
        self._stream = None
        self._engine = None
        self._threads = []

    @property
    def connected(self) -> bool:
        """Whether the view is current and the last post was answered."""
        return self._following and self._delivering

    @property
    def undelivered(self) -> int:
        """Number of events that are buffered or not yet acknowledged."""
        with self._work:
            return len(self.buffer) + self._under_way

    def publish(self, record: msgspec.Struct) -> None:
        """Append an event or a command to the buffer."""
        self.buffer.add(record)
        with self._work:
            if not self._threads and self._started and not self._closing.is_set():
                self._begin()  # after a fork
            self._work.notify()

    async def start(self, wait_s: float) -> None:
        """Start reading and delivering; wait up to `wait_s` seconds for the view."""
        self._started = True
        self._begin()
        await asyncio.to_thread(self._caught_up.wait, wait_s)
        if not self.connected:
            log_event(logging.WARNING, "guard_not_connected", url=self._client.name)

    def _begin(self) -> None:
        self._delivering = True
        for work in (self._follow, self._deliver):
            thread = threading.Thread(target=work, name=f"trustfold-{work.__name__.strip('_')}", daemon=True)
            thread.start()
            self._threads.append(thread)

    async def changed(self, timeout_ms: float) -> None:
        """Wait until the view changes, at most `timeout_ms` milliseconds."""
        await self._changed.wait(timeout_ms)

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all events published so far are delivered; return False on timeout."""
        until = time.monotonic() + timeout_s
        while self.undelivered:
            if time.monotonic() >= until:
                return False
            await self._changed.wait(20)
        return True

    async def close(self) -> None:
        """Deliver buffered events within `CLOSE_S` seconds, then disconnect.

        Without a connection this is tried once. What no answer confirmed by then counts as undelivered, also if it
        arrives later.
        """
        until = time.monotonic() + CLOSE_S
        self._closing.set()
        with self._work:
            self._work.notify_all()
        if (stream := self._stream) is not None:
            stream.interrupt()
        for thread in reversed(self._threads):
            await asyncio.to_thread(thread.join, max(0.0, until - time.monotonic()))
        with self._work:
            self._given_up = True
            left = self._under_way + self.buffer.close()
        if self._engine is not None:
            await asyncio.to_thread(self._engine.stop)
        if left:
            log_event(logging.ERROR, "events_undelivered", count=left)
            self._metrics.add(EVENTS, "undelivered", amount=left)

    # --- following ------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._closing.is_set():
            try:
                offset = self._read_states()
                pause = FIRST_PAUSE_S
                for line in self._lines(offset):
                    one = orjson.loads(line)
                    value = one["value"]
                    raw = orjson.dumps(value) if value is not None else None
                    apply_record(one["topic"], one["key"], raw, self.view, self.decisions)
                    self._changed.notify()
            except (TrustfoldError, AttributeError, LookupError, TypeError, ValueError) as error:
                if self._following:
                    log_event(logging.WARNING, "guard_disconnected", errorCode=type(error).__name__)
            self._following = False
            self._closing.wait(pause)
            pause = min(LAST_PAUSE_S, 2 * pause)

    def _read_states(self) -> int:
        """Apply all current states; return the offset from which changes follow."""
        answer = orjson.loads(self._client.request("GET", "/v1/state", token=self._token))
        fresh = {}
        for record in answer["states"]:
            fresh[record_key(record)] = orjson.dumps(record)
        for key in self.view.keys() - fresh.keys():
            self.view.apply(key, None)
        for key, value in fresh.items():
            self.view.apply(key, value)
        return int(answer["offset"])

    def _lines(self, offset: int) -> Iterator[bytes]:
        """Lines of the decision stream, until the stream ends."""
        path = f"/v1/decisions?follow=true&topics={','.join(FOLLOWED)}&after={offset}"
        stream = self._stream = self._client.stream(path, token=self._token, silence_s=SILENCE_S)
        try:
            if self._closing.is_set():  # `close` did not see the stream
                return
            self._following = True
            self._caught_up.set()
            self._changed.notify()
            yield from stream
        finally:
            self._stream = None
            stream.close()

    # --- delivering -----------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        while True:
            with self._work:
                while not len(self.buffer) and not self._closing.is_set():
                    self._work.wait(1.0)
            self._closing.wait(LINGER_S)
            with self._work:
                batch = self.buffer.take(BATCH)
                self._under_way = len(batch)
            if not batch:
                return
            for are_events, records in groupby(batch, is_event):
                if not self._post(EVENTS_PATH if are_events else ORDERS_PATH, list(records)):
                    return
            self._changed.notify()

    def _post(self, path: str, records: list[msgspec.Struct]) -> bool:
        """Post records until they are accepted or refused for good; return False if the guard closed before."""
        ready = [value for one in records if (value := encoded(one, self._metrics)) is not None]
        with self._work:
            self._under_way -= len(records) - len(ready)
        return not ready or self._post_encoded(path, ready)

    def _post_encoded(self, path: str, ready: list[bytes]) -> bool:
        """Post encoded records as `_post` does; those that are refused are posted in halves, down to the one at fault.

        A closing guard posts once more.
        """
        body = b"\n".join(ready)
        token = (self._operator_token if path == ORDERS_PATH else "") or self._token
        pause = FIRST_PAUSE_S
        suspected = False
        while not self._given_up:
            last = self._closing.is_set()
            try:
                self._request(path, body, token, len(ready))
            except (TargetUnreachable, TookTooLong, EngineRefused) as error:
                fault = self._fault(error, path, token)
                if fault is _PostFault.RECORDS and len(ready) > 1:
                    middle = len(ready) // 2
                    return self._post_encoded(path, ready[:middle]) and self._post_encoded(path, ready[middle:])
                if fault is _PostFault.RECORDS and not suspected and not _too_large(error):
                    suspected = True  # a proxy may have changed its mind between this record and the empty body
                    continue
                if fault is not _PostFault.WAY:
                    log_event(logging.ERROR, "events_refused", count=len(ready), why=str(error)[:200])
                    self._settle("refused", len(ready))
                    return True
                self._log_failed_delivery(error)
                self._delivering = False
                if last:
                    return False
                self._closing.wait(pause)
                pause = min(LAST_PAUSE_S, 2 * pause)
            else:
                self._settle("published", len(ready))
                return True
        return False

    def _request(self, path: str, body: bytes, token: str, records: int) -> None:
        """Post a body of so many records."""
        answer = self._client.request("POST", path, body, token=token)
        try:
            counts = msgspec.json.decode(answer, type=_PostCounts)
        except msgspec.DecodeError:
            counts = None
        if counts is None or counts.accepted + counts.dead_letters != records:
            raise EngineRefused(f"what answers at {self._client.name} is not `trustfold up`", NOT_OURS)

    def _fault(self, error: TrustfoldError, path: str, token: str) -> _PostFault:
        """Return the cause of a failed post.

        A proxy refuses a record's content and a sender with the same statuses. What also refuses a body without records
        refuses the sender.
        """
        if _too_large(error):
            return _PostFault.RECORDS
        if not isinstance(error, EngineRefused):
            return _PostFault.WAY
        own_token = path == ORDERS_PATH and token != self._token
        if error.temporary and error.status != NOT_OURS:
            return _PostFault.SENDER if error.status == 401 and own_token else _PostFault.WAY
        try:
            self._request(path, b"\n", token, 0)
        except EngineRefused as refusal:
            return _PostFault.SENDER if path == ORDERS_PATH and not refusal.temporary else _PostFault.WAY
        except (TargetUnreachable, TookTooLong):
            return _PostFault.WAY
        return _PostFault.RECORDS

    def _settle(self, result: str, count: int) -> None:
        """Count records as published or refused, unless `close` has counted them as undelivered."""
        self._delivering, self._reported_at = True, None
        with self._work:
            if not self._given_up:
                self._under_way -= count
                self._metrics.add(EVENTS, result, amount=count)

    def _log_failed_delivery(self, error: TrustfoldError) -> None:
        """Log a failed attempt: the first one, then one every `REPEAT_S` seconds."""
        now = time.monotonic()
        if self._reported_at is not None and now - self._reported_at < REPEAT_S:
            return
        self._reported_at = now
        log_event(
            logging.WARNING,
            "events_not_delivered",
            errorCode=type(error).__name__,
            why=str(error)[:200],
            buffered=self.undelivered,
            dropped=self.buffer.dropped,
        )

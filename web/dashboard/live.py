"""Server-sent events that notify open pages of changes.

A page subscribes to topics; the stream names those that changed, at most twice a second, and the page fetches the
changed parts again. Messages hold no data, so they may be lost, repeated or merged, and a slow client is only late.
Changes are numbered; a reconnecting client sends the last number it has seen and gets the changes since, or, if they
are no longer stored, a request to fetch everything (`resync`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from secrets import token_hex

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .current_state import StateBoard

PACE_S = 0.5  # Seconds between two messages of a stream
FLOOD_PACE_S = 1.0  # The same during continuous changes, since each message makes the page render again
LOOK_S = 0.05  # Seconds between two checks for changes of a stream's topics
HEARTBEAT_S = 15.0  # Seconds without a message after which a heartbeat is sent; below the idle limits of common proxies
MAX_RING = 512  # Number of changes stored for reconnecting clients: minutes, at two a second
MAX_JOINED = 4096  # Maximum topics of one change; above that all changes are dropped, and all clients fetch everything
MAX_STREAMS = 200  # Maximum streams of all clients
MAX_STREAMS_OF_ONE = 24  # Maximum streams of one address: several times the connections of a browser over HTTP/1.1
MAX_DIGITS = 18  # Maximum digits of the number of a change; Python refuses to parse thousands of digits
MAX_TOPICS = 16  # Maximum topics of one stream


class StreamHub:
    """All open streams of one process."""

    def __init__(self, board: StateBoard) -> None:
        """Publish the changes of a board."""
        self.stopping = False  # the streams end
        self._watched = board.watched
        board.listeners.append(self.notify)
        self._boot = token_hex(4)
        self._last = 0
        self._handed_out = 0
        self._ring: deque[tuple[int, Counter[str]]] = deque(maxlen=MAX_RING)
        self._streams: Counter[str] = Counter()
        self._changed = asyncio.Event()

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return self._streams.total()

    def notify(self, changes: Mapping[str, int]) -> None:
        """Add changed topics with their numbers of records; merged with the last change until a client sees it."""
        if self._last == self._handed_out:
            self._last += 1
            self._ring.append((self._last, Counter(changes)))
        else:
            joined = self._ring[-1][1]
            joined.update(changes)
            if len(joined) > MAX_JOINED:
                self._ring.clear()
                self._handed_out = self._last = self._last + 1
        self._wake()

    @property
    def mark(self) -> str:
        """Id of the latest change; a page rendered afterwards continues from it."""
        return self._id(self._hand_out())

    def stop(self) -> None:
        """End all streams."""
        self.stopping = True
        self._wake()

    def since(self, number: int) -> Counter[str] | None:
        """Changes after a number, by topic; None if no longer stored."""
        oldest = self._ring[0][0] if self._ring else self._last + 1
        if not oldest - 1 <= number <= self._last:
            return None
        found: Counter[str] = Counter()
        for at, changes in reversed(self._ring):
            if at <= number:
                break
            found.update(changes)
        return found

    def refusal(self, client: str) -> str | None:
        """Why a client is refused another stream; None if it is accepted."""
        if self.stopping:
            return "the server stops"
        if self.streams >= MAX_STREAMS:
            return f"{MAX_STREAMS} pages are live already; reload this one to see what is new"
        if self._streams[client] >= MAX_STREAMS_OF_ONE:
            return f"{MAX_STREAMS_OF_ONE} of your pages are live already; close some, or reload this one"
        return None

    async def stream(self, client: str, topics: frozenset[str], last_id: str = "") -> AsyncIterator[bytes]:
        """Messages for one page: `change` with the number of changes by topic, `resync`, `bye`; else heartbeats.

        There is none where too many streams have begun since `refusal` was asked: whoever asks again is told why.
        """
        if self.refusal(client) is not None:
            return
        self._streams[client] += 1
        self._watched.update(topics)
        loop = asyncio.get_running_loop()
        try:
            boot, _, number = last_id.partition("-")
            known = boot == self._boot and number.isdecimal() and len(number) <= MAX_DIGITS
            seen = int(number) if known else self._hand_out()
            yield b"retry: 1000\n" + self._message("open" if known or not last_id else "resync", seen)
            spoken, pace = loop.time(), PACE_S
            while not self.stopping:
                signal = self._changed
                changes = self.since(seen)
                wanted = {} if changes is None else {name: n for name, n in changes.items() if name in topics}
                seen = self._hand_out()
                if changes is None or wanted:
                    yield self._message("resync" if changes is None else "change", seen, wanted)
                    spoken = loop.time()
                    await asyncio.sleep(pace)
                    pace = FLOOD_PACE_S
                    continue
                pace = PACE_S
                with suppress(TimeoutError):
                    await asyncio.wait_for(signal.wait(), max(0.0, spoken + HEARTBEAT_S - loop.time()))
                if loop.time() >= spoken + HEARTBEAT_S:
                    yield b":\n\n"
                    spoken = loop.time()
                await asyncio.sleep(LOOK_S)  # changes of other topics may be frequent
            yield self._message("bye", seen)
        finally:
            _forget(self._streams, (client,))
            _forget(self._watched, topics)

    def _hand_out(self) -> int:
        """Number of the last change; later changes are no longer merged into it."""
        self._handed_out = self._last
        return self._last

    def _id(self, number: int) -> str:
        return f"{self._boot}-{number}"

    def _message(self, event: str, number: int, body: Mapping[str, int] | None = None) -> bytes:
        named = (event.encode(), self._id(number).encode(), orjson.dumps(body or {}))
        return b"event: %b\nid: %b\ndata: %b\n\n" % named

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _forget(counts: Counter[str], names: Iterable[str]) -> None:
    """Decrease the count of each name; remove names with count 0."""
    for name in names:
        counts[name] -= 1
        if counts[name] <= 0:
            del counts[name]


async def live(request: Request, hub: StreamHub) -> Response:
    """`GET /live?topic=now&topic=feed&from=ID`: the stream of a page; 503 where there are too many.

    `from` is the mark under which the page was made; `Last-Event-ID` of a client that comes back is newer.
    """
    client = request.client.host if request.client else ""
    refusal = hub.refusal(client)
    if refusal is not None:
        return Response(refusal, 503, media_type="text/plain", headers={"Retry-After": "10"})
    topics = frozenset(request.query_params.getlist("topic")[:MAX_TOPICS])
    return StreamingResponse(
        hub.stream(client, topics, request.headers.get("last-event-id") or request.query_params.get("from", "")),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )

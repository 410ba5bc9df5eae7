"""Tells open pages what has changed, over server-sent events.

A page names the topics that it shows; the stream says which of them changed, at most twice a second, and the page
fetches what it shows of them again. So a message never holds data: it may be lost, repeated or joined with others, and
a slow client misses nothing but time. Changes are numbered; a client that comes back names the last number it has seen
and is told what changed since, or, if that is forgotten, to fetch everything (`resync`).
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

from .current_state import Board

PACE_S = 0.5
"""Seconds between two messages of a stream."""

FLOOD_PACE_S = 1.0
"""The same while changes come all the time: each message has a page made anew."""

LOOK_S = 0.05
"""Seconds between two looks for changes that concern a stream."""

HEARTBEAT_S = 15.0
"""Seconds of silence after which a stream gives a sign of life, below the idle limits of common proxies."""

MAX_RING = 512
"""Changes remembered for clients that come back: minutes, at two a second."""

MAX_JOINED = 4096
"""Topics of one change; beyond that all is forgotten, and everybody fetches everything."""

MAX_STREAMS = 200
"""Streams of all clients together."""

MAX_STREAMS_OF_ONE = 24
"""Streams of one address: more tabs than a browser can hold open over HTTP/1.1, several times over."""

MAX_DIGITS = 18
"""Digits of the number of a change; Python refuses to read a number of thousands."""

MAX_TOPICS = 16
"""Topics of one stream."""


class Hub:
    """All open streams of one process.

    Attributes:
        stopping: the streams end.
    """

    def __init__(self, board: Board) -> None:
        """Tell what changes on a board; nobody listens yet."""
        self.stopping = False
        self._watched = board.watched
        board.listeners.append(self.tell)
        self._boot = token_hex(4)
        self._last = 0
        self._handed_out = 0
        self._ring: deque[tuple[int, Counter[str]]] = deque(maxlen=MAX_RING)
        self._streams: Counter[str] = Counter()
        self._changed = asyncio.Event()

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return self._streams.total()

    def tell(self, changes: Mapping[str, int]) -> None:
        """Topics have changed, each by so many records; joined to the last change as long as nobody has seen that."""
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
        """Id of what has changed up to now: a page that is made afterwards follows from here."""
        return self._id(self._hand_out())

    def stop(self) -> None:
        """End all streams."""
        self.stopping = True
        self._wake()

    def since(self, number: int) -> Counter[str] | None:
        """What changed after a number, by topic; None where that is forgotten."""
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
        """Why a client gets no further stream; None where it does."""
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
                await asyncio.sleep(LOOK_S)  # others' changes come by the hundred
            yield self._message("bye", seen)
        finally:
            _forget(self._streams, (client,))
            _forget(self._watched, topics)

    def _hand_out(self) -> int:
        """The number of the last change, which nothing is joined to any more."""
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
    """Count one less of each name; a name without a count goes."""
    for name in names:
        counts[name] -= 1
        if counts[name] <= 0:
            del counts[name]


async def live(request: Request, hub: Hub) -> Response:
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

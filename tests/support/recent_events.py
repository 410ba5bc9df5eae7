"""Events as if they had just ended: for orders, which are given now and find no evidence that has aged."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import orjson
from trustfold.cli.demo import events
from trustfold.schemas.codec import rfc3339


def recent_events(lines: Iterable[bytes] = ()) -> list[bytes]:
    """Events, the last of which is of a minute ago; by default the scripted ones of the demo."""
    bodies = [orjson.loads(line) for line in list(lines) or events()]
    times = [datetime.fromisoformat(body["time"]) for body in bodies]
    later = datetime.now(UTC).timestamp() - 60 - max(times).timestamp()
    return [
        orjson.dumps(body | {"time": rfc3339(round(1000 * (time.timestamp() + later)))})
        for body, time in zip(bodies, times, strict=True)
    ]

"""External sort of events of many logs by time, with little memory: folds need them in time order."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from datetime import datetime
from tempfile import TemporaryFile

from ...schemas.event_base import epoch_ms

_TIME = re.compile(rb'"time":"([^"]+)"')


class InOrderOfTime:
    """Stable sort of events by time, in a temporary file."""

    def __init__(self) -> None:
        """Create an empty temporary file."""
        self._file = TemporaryFile()  # noqa: SIM115 - closed by `close`; it lives as long as this does
        self._times = array("q")
        self._sizes = array("q")

    def add(self, event: bytes) -> None:
        """Add an event."""
        found = _TIME.search(event)
        self._times.append(epoch_ms(datetime.fromisoformat(found[1].decode())) if found else 0)
        self._sizes.append(len(event))
        self._file.write(event)

    def __len__(self) -> int:
        """Number of events."""
        return len(self._times)

    def __iter__(self) -> Iterator[bytes]:
        """Yield all events in time order."""
        starts = array("q", [0])
        for size in self._sizes:
            starts.append(starts[-1] + size)
        for number in sorted(range(len(self._times)), key=self._times.__getitem__):
            self._file.seek(starts[number])
            yield self._file.read(self._sizes[number])

    def close(self) -> None:
        """Delete the temporary file."""
        self._file.close()

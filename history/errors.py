"""What can go wrong with a history, and whose business it is."""

from __future__ import annotations

import errno
from pathlib import Path

from ..schemas.errors import ConfigError, TrustfoldError


class HistoryError(TrustfoldError):
    """The history cannot be written or read; the message says what to do."""


class HistoryFull(HistoryError):
    """There is no room for the next file. What was read is kept in memory; writing it can be tried again."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            f"{root}: the disk is full; nothing is lost: reading stops until there is room again. Free some space, or "
            "keep less (--keep-days)"
        )


class HistoryTaken(ConfigError):
    """Another recorder is writing this part of the history."""


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_ROOM_WORDS = ("No space left", "Disk quota exceeded", "File too large", "failed to offload", "No more space")


def is_full(error: Exception) -> bool:
    """Whether an error of the system or of DuckDB says that there is no room."""
    if isinstance(error, OSError):
        return error.errno in _NO_ROOM
    return any(words in str(error) for words in _NO_ROOM_WORDS)

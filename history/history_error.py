"""Errors of a history: who must act, and what to do."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from ..errors import ConfigError, TrustfoldError


class HistoryError(TrustfoldError):
    """The history cannot be written or read; the message says what to do."""


class HistoryFull(HistoryError):
    """No space for the next file. Waiting rows stay in memory; writing can be tried again."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            f"{root}: the disk is full; nothing is lost: reading stops until there is space again. Free some space, or "
            "keep less (--keep-days)"
        )


class HistoryTaken(ConfigError):
    """Another recorder is writing this part of the history."""


_FILE = re.compile(r"'([^']+\.parquet)'|\"([^\"]+\.parquet)\"")
_DAMAGED = (
    "magic bytes",
    "too small to be a Parquet",
    "Parquet",
    "thrift",
    "TProtocol",
    "decompress",
    "Snappy",
    "ZSTD",
)


def unreadable(error: Exception, root: Path | None = None) -> HistoryError:
    """HistoryError for a DuckDB error while reading files: which file, and what to do."""
    reason = str(error).partition("\n")[0]
    where = f"{root}: " if root is not None else ""
    found = _FILE.search(reason)
    if found and any(words in reason for words in _DAMAGED):
        file = found[1] or found[2]
        return HistoryError(
            f"{where}the history cannot be read: {file} is damaged or no Parquet file ({reason}); move it out of the "
            "history and the rest can be read; recording its log again into a new directory brings back what was in it"
        )
    if isinstance(getattr(error, "status_code", None), int):
        return unreachable(error)
    hint = "; check its rights" if "Permission denied" in reason else ""
    if "Binder Error" in reason or "Mismatch" in reason:
        hint = "; is there a file that trustfold did not write?"
    return HistoryError(f"{where}the history cannot be read ({reason}){hint}")


_REFUSED = "; check the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, or a secret kept in DuckDB)"
_HINTS = {301: "; check AWS_REGION", 400: _REFUSED, 401: _REFUSED, 403: _REFUSED, 404: "; check the name of the bucket"}


def unreachable(error: Exception, address: str = "") -> HistoryError:
    """HistoryError for an error of an object store: what to check."""
    reason = str(error).partition("\n")[0]
    hint = _HINTS.get(
        getattr(error, "status_code", 0), "; check the network, and AWS_ENDPOINT_URL where it is not Amazon's"
    )
    where = f"{address}: " if address else ""
    return HistoryError(f"{where}the object store cannot be read ({reason}){hint}")


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_ROOM_WORDS = ("No space left", "Disk quota exceeded", "File too large", "failed to offload", "No more space")


def is_full(error: Exception) -> bool:
    """True if an error of the system or of DuckDB means that the disk is full."""
    if isinstance(error, OSError):
        return error.errno in _NO_ROOM
    return any(words in str(error) for words in _NO_ROOM_WORDS)

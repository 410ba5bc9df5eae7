"""Errors of the embedded engine's file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ...errors import TrustfoldError


class StoreError(TrustfoldError):
    """The file cannot be read or written; the message names it, the cause and what to do."""


class StoreLocked(StoreError):
    """Another process runs an engine over this file.

    Attributes:
        process: its process id as stored.
        address: its HTTP address; empty if it serves none.
    """

    def __init__(self, path: Path, process: str, address: str) -> None:
        super().__init__(path, process, address)
        self.path = path
        self.process = process
        self.address = address

    def __str__(self) -> str:
        way = f"ask it with --url {self.address}" if self.address else "wait for it to end"
        return f"{self.path}: in use by process {self.process or 'unknown'}; {way}, stop it, or name another store"


def store_error(path: Path, error: sqlite3.Error | OSError) -> StoreError:
    """Translate an error of SQLite or of the file system to a message with a remedy."""
    text = str(error)
    if "disk is full" in text or "No space left" in text:
        return StoreError(
            f"{path}: the disk is full; nothing of the last batch was kept, free some space and send it again"
        )
    if "not a database" in text or "malformed" in text:
        return StoreError(
            f"{path}: not a trustfold store, or damaged ({text}); restore a copy, or start with a new file"
        )
    if "readonly" in text or "unable to open" in text or "ermission" in text:
        return StoreError(f"{path}: cannot be opened ({text}); check that the folder exists and may be written")
    return StoreError(f"{path}: {text}")

"""Recorded sessions, and how each ended: what a detector is measured against."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

TRACES = Path(os.environ.get("TRUSTFOLD_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
LABELS = "labels.jsonl"
FULL_REWARD = 1.0


class Ending(StrEnum):
    """How a session ended, as far as its labels say."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Source(NamedTuple):
    """One file of recorded sessions."""

    name: str
    file: Path

    def lines(self) -> Iterator[bytes]:
        """Its events, in order, as they were recorded."""
        with gzip.open(self.file) as lines:
            yield from lines


def sources(folder: Path, only: tuple[str, ...] = ()) -> list[Source]:
    """Files of a folder of recorded sessions, those named or all."""
    found = [Source(file.name.partition(".")[0], file) for file in sorted(folder.glob("*.ndjson.gz"))]
    return [source for source in found if not only or source.name in only]


def endings(folder: Path) -> dict[tuple[str, str], Ending]:
    """How sessions ended, by source and session id; sessions whose labels say nothing of that are missing.

    A full reward, a run that finished or commits made are success; less than the full reward or a run that broke off
    with an error is failure. An interrupt, a refusal or an error of the model's service says nothing about the model.
    """
    found: dict[tuple[str, str], Ending] = {}
    file = folder / LABELS
    if not file.exists():
        return found
    for line in file.read_text(encoding="utf-8").splitlines():
        label = json.loads(line)
        ending = _ending(label["label"], str(label.get("note") or ""))
        if ending is not None:
            found[label["source"], label["session_id"]] = ending
    return found


def _ending(label: str, note: str) -> Ending | None:
    match label:
        case "reward":
            return Ending.SUCCEEDED if float(note) >= FULL_REWARD else Ending.FAILED
        case "finished":
            return Ending.SUCCEEDED
        case "run_error":
            return Ending.FAILED
        case "commits" if not note.startswith("0 "):
            return Ending.SUCCEEDED
    return None

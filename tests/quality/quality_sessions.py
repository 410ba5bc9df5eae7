"""Recorded sessions, and how each ended: what a detector is measured against."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

TRACES = Path(os.environ.get("TRUSTFOLD_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
RECORDINGS = tuple(Path(folder) for folder in os.environ.get("TRUSTFOLD_RECORDINGS", "").split(os.pathsep) if folder)
LOGS = os.environ.get("TRUSTFOLD_LOGS")
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
        with gzip.open(self.file) if self.file.suffix == ".gz" else self.file.open("rb") as lines:
            yield from lines


class Labels(NamedTuple):
    """What is known about the sessions of all sources.

    Attributes:
        endings: how a session ended, by source and session id; sessions whose labels say nothing of that are missing.
        benchmarks: sources whose runs were given a reward.
    """

    endings: dict[tuple[str, str], Ending]
    benchmarks: frozenset[str]

    def ending(self, source: str, session: str) -> Ending:
        """How a session ended."""
        return self.endings.get((source, session), Ending.UNKNOWN)


def sources(folders: Iterable[Path], only: tuple[str, ...] = ()) -> list[Source]:
    """Files of folders of recorded sessions, those named or all; of a source in several folders, the last one's."""
    files = [file for folder in folders for file in sorted((*folder.glob("*.ndjson.gz"), *folder.glob("*.ndjson")))]
    found = {file.name.partition(".")[0]: file for file in files}
    return [Source(name, found[name]) for name in sorted(found) if not only or name in only]


def imported(found: list[Source], logs: Path, folder: Path) -> list[Source]:
    """The same sources; those that have a folder of agents' own logs are imported anew, into `folder`."""
    fresh: list[Source] = []
    for source in found:
        own = logs / source.name
        if own.is_dir():
            file = folder / f"{source.name}.ndjson"
            command = [sys.executable, "-m", "trustfold", "import", str(own), "--workspace", source.name]
            subprocess.run([*command, "--output", str(file)], check=True, capture_output=True)
            source = Source(source.name, file)  # noqa: PLW2901 - the same source, from another file
        fresh.append(source)
    return fresh


def labels(folders: Iterable[Path]) -> Labels:
    """Read the labels of sessions.

    A full reward, a run that finished or commits made are success; less than the full reward or a run that broke off
    with an error is failure, also beside a success. An interrupt, a refusal or an error of the model's service says
    nothing about the model.
    """
    endings: dict[tuple[str, str], Ending] = {}
    benchmarks = set()
    for file in (folder / LABELS for folder in folders):
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            label = json.loads(line)
            ending = _ending(label["label"], str(label.get("note") or ""))
            session = label["source"], label["session_id"]
            if ending is not None and endings.get(session) is not Ending.FAILED:
                endings[session] = ending
            if label["label"] == "reward":
                benchmarks.add(label["source"])
    return Labels(endings, frozenset(benchmarks))


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

"""Which files an import reads, in which order, and what each is called."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from ..schemas.errors import ConfigError
from ..streams.embedded.replay import STDIN, open_lines
from .replay import check_files

SUFFIXES = (".jsonl", ".ndjson", ".json", ".traj")
"""What is read in a directory, plain or with `.gz` behind."""

_PEEKED = 65_536
_TIME = re.compile(rb'"(?:timestamp|created_at|start_time|startTimeUnixNano)"\s*:\s*"?([^",}\s]{4,40})')


class LogFile(NamedTuple):
    """A file to import.

    Attributes:
        name: as it is opened.
        source: what sessions without an id of their own are called after; the same at every import.
    """

    name: str
    source: str


def log_files(names: Iterable[str]) -> list[LogFile]:
    """The files that are meant, the oldest first: of two that begin alike, the shorter was there before.

    Raises:
        ConfigError: one is missing, or a directory holds none.
    """
    given = tuple(dict.fromkeys(names))
    check_files(tuple(name for name in given if name == STDIN or not Path(name).is_dir()))
    found: dict[str, str] = {}
    for name in given:
        if name == STDIN:
            found[name] = "stdin"
        elif Path(name).is_dir():
            inside = _inside(Path(name))
            if not inside:
                raise ConfigError(f"{name}: no log in this directory; logs are called *{', *'.join(SUFFIXES)} (.gz)")
            for file in inside:
                found.setdefault(str(file), _stem(file.relative_to(name)))
        else:
            found[name] = _stem(Path(Path(name).name))
    twice = Counter(found.values())
    files = [LogFile(name, source if twice[source] == 1 else _stem(Path(name))) for name, source in found.items()]
    return files if len(files) == 1 else sorted(files, key=_age)


def lines_of(file: IO[bytes], damages: list[str], name: str) -> Iterator[bytes]:
    """Lines of an open file, as far as they can be read; what stops that is added to `damages`."""
    try:
        yield from file
    except (EOFError, zlib.error, OSError) as error:
        damages.append(f"{name}: ends early or is damaged ({error})")


def _inside(folder: Path) -> list[Path]:
    files = (file for file in folder.rglob("*") if file.name.removesuffix(".gz").endswith(SUFFIXES))
    return sorted(file for file in files if file.is_file() and not file.name.startswith("."))


def _stem(path: Path) -> str:
    text = path.as_posix().removesuffix(".gz")
    return next((text.removesuffix(suffix) for suffix in SUFFIXES if text.endswith(suffix)), Path(text).stem) or text


def _age(file: LogFile) -> tuple[bytes, int, str]:
    """When a log begins, as it is written in it, and how long it is; logs without a time come last."""
    if file.name == STDIN:
        return b"~", 0, file.name
    try:
        with open_lines(file.name) as lines:
            found = _TIME.search(lines.read(_PEEKED))
        return (found[1] if found else b"~"), Path(file.name).stat().st_size, file.name
    except (EOFError, zlib.error, OSError):
        return b"~", 0, file.name

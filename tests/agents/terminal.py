"""A program in a terminal of its own: what it shows, and what a person types."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

_CONTROLS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_=>])")
ESCAPE = "\x1b"
_QUIET_S = 1.5
"""Seconds without output after which a program waits for its user."""

_ANSWERS = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62c", b"\x1b[>c": b"\x1b[>0;0;0c", b"\x1b[?u": b"\x1b[?0u"}
"""What a terminal answers when a program asks it what it is."""


class Terminal:
    """The terminal; use it with `with`."""

    def __init__(self, words: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        """Start a program."""
        self._shown = b""
        self._at = time.monotonic()
        self._end, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 160, 0, 0))
        self._process = subprocess.Popen(
            words,
            cwd=folder,
            env={**environ, "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._end)

    def text(self) -> str:
        """Everything shown so far, without blanks: programs draw them in many ways."""
        return "".join(_CONTROLS.sub(b"", self._shown).decode(errors="replace").split())

    def shows(self, words: str) -> bool:
        """Whether some words were shown."""
        return "".join(words.split()) in self.text()

    def wait(self, until: Callable[[], bool], seconds: float = 240) -> bool:
        """Take what is shown until something holds; False if it does not in time."""
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end or self._process.poll() is not None:
                return False
            self._take()
        return True

    def rest(self) -> None:
        """Wait until nothing more is shown."""
        self._at = time.monotonic()
        self.wait(lambda: time.monotonic() - self._at > _QUIET_S, 20)

    def type(self, keys: str) -> None:
        """Type keys, and the return key by itself: some programs take a fast one for a part of what was pasted."""
        self.rest()
        for part in re.split(r"(\r)", keys):
            self.press(part)

    def press(self, key: str) -> None:
        """Press a key at once."""
        os.write(self._end, key.encode())
        self.wait(lambda: False, 0.5)

    def _take(self) -> None:
        if not select.select([self._end], [], [], 0.1)[0]:
            return
        try:
            part = os.read(self._end, 65536)
        except OSError:
            return
        self._shown += part
        self._at = time.monotonic() if len(part) > 40 else self._at
        for question, answer in _ANSWERS.items():
            for _ in range(part.count(question)):
                os.write(self._end, answer)

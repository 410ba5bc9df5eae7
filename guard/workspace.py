"""Evidence of change in a workspace: the digest of a git project's modified and untracked files.

Whoever wrote a project wrote its git configuration, too, so nothing that it names is run: no hook, no monitor of the
file system, no filter, no transport; nothing is written either. Filters are switched off by the names that the
configuration has at that moment.
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import stat
import subprocess
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..ingest.workspaces import git_root
from ..projections.calls import keys, tool_class
from ..schemas.vocabulary import ToolClass

WITHIN_S = 0.06  # Seconds that a digest may take; a later one is none
PAUSE_S = 60.0  # Seconds for which a project has no digest after one that was late
MAX_FILES = 2_000  # Number of modified and untracked files beyond which a project has no digest
MAX_OUTPUT = 1 << 20  # Bytes of git's answer beyond which a project has no digest

MAX_FILTERS = 100

MAX_PROJECTS = 1_000

_MAX_AT_ONCE = 2  # Number of digests computed at the same time; others are none

# Settings of git that a project's own do not override
_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.ignoreStat": "false",
    "core.untrackedCache": "keep",
    "status.showUntrackedFiles": "all",
}

_VARIABLES = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
_STATUS = "status --porcelain=v2 --branch --no-ahead-behind -z -uall --no-renames --ignore-submodules=all".split()
_FILTERS = ("config", "-z", "--name-only", "--get-regexp", "^filter[.]")


def workspace_digest(folder: str, within_s: float | None = None) -> str | None:
    """Digest of the git project that a folder is in: equal for equal files, apart from ignored ones.

    It covers the commit, and modified and untracked files by path, size, mode and time of modification. None for a
    folder in no project of this user, for a home and what is above it, for a project with others inside, with too many
    changes, and where it takes longer than `within_s` (default: `WITHIN_S`).
    """
    until = time.monotonic() + (WITHIN_S if within_s is None else within_s)
    root, program = project_of(folder), _program()
    if root is None or not program or os.path.lexists(root / ".gitmodules"):
        return None
    git = [program, "-C", str(root), f"--work-tree={root}", "--no-pager"]
    environ = _VARIABLES | {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in os.environ}
    environ["GIT_CEILING_DIRECTORIES"] = str(root.parent)
    names = _answer([*git, *_FILTERS], environ | _settings(_SETTINGS), until, accepted=(0, 1))
    filters = [os.fsdecode(name) for name in (names or b"").split(b"\0") if name]
    if names is None or len(filters) > MAX_FILTERS:
        return None
    off = {name: "false" if name.endswith(".required") else "" for name in filters}
    status = _answer([*git, *_STATUS], environ | _settings(_SETTINGS | off), until)
    return None if status is None else _digest_of(os.fsencode(root) + b"/", status)


def project_of(folder: str) -> Path | None:
    """Root of this user's project that a folder is in; None without one, and for a home and what is above it."""
    if not folder.startswith("/") or "\x00" in folder:
        return None
    try:
        found = git_root(str(Path(folder).resolve(strict=True)))
        root = Path(found)
        if not found or (root / ".git").lstat().st_uid != os.geteuid():
            return None
        return None if Path.home().resolve().is_relative_to(root) else root
    except (OSError, RuntimeError):
        return None


@lru_cache(maxsize=1)
def _program() -> str:
    found = shutil.which("git") or ""
    return found if found.startswith("/") else ""


def _settings(values: Mapping[str, str]) -> dict[str, str]:
    """Return settings as variables; an argument `-c` could not name all filters."""
    made = {"GIT_CONFIG_COUNT": str(len(values))}
    for number, (name, value) in enumerate(values.items()):
        made |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return made


def _answer(
    words: list[str], environ: Mapping[str, str], until: float, accepted: tuple[int, ...] = (0,)
) -> bytes | None:
    """Output of a command; None if it failed, was late or said too much. Its process group never outlives this."""
    try:
        process = subprocess.Popen(  # noqa: S603 - fixed words
            words,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    output, whole = bytearray(), False
    assert process.stdout is not None  # noqa: S101 - a pipe, as asked for
    with process.stdout as pipe:
        while len(output) <= MAX_OUTPUT and (left := until - time.monotonic()) > 0:
            if not select.select([pipe], [], [], left)[0]:
                break
            part = os.read(pipe.fileno(), 65536)
            if not part:
                whole = True
                break
            output += part
    try:
        if whole and process.wait(max(0.001, until - time.monotonic())) in accepted:
            return bytes(output)
    except subprocess.TimeoutExpired:
        pass
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(1.0)
        except (ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
            pass  # it hangs in the kernel, and is reaped whenever it ends
    return None


def _digest_of(root: bytes, status: bytes) -> str | None:
    """Digest of what git lists and of the files' states; None if there are too many, or repositories among them."""
    records = [one for one in status.split(b"\0") if one and (one[:2] != b"# " or one.startswith(b"# branch.oid "))]
    if len(records) > MAX_FILES + 1:
        return None
    digest = blake2b(digest_size=8)
    for record in records:
        kind = record[:2]
        fields = {b"1 ": 8, b"u ": 10, b"? ": 1}.get(kind, 0)
        path = record.split(b" ", fields)[-1] if fields else b""
        if path.endswith(b"/"):
            return None
        digest.update(b"%d:%b%b" % (len(record), record, _state_of(root + path) if path else b""))
    return f"w1:{digest.hexdigest()}"


def _state_of(path: bytes) -> bytes:
    try:
        found = os.lstat(path)
    except OSError:
        return b"-"
    return b"%d %d %d;" % (found.st_mtime_ns, found.st_size, stat.S_IFMT(found.st_mode) | found.st_mode & 0o111)


class WorkspaceDigests:
    """Computes digests beside the event loop, and leaves projects alone that were slow."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Start without knowledge; tests replace the clock."""
        self._monotonic = monotonic
        self._resting: OrderedDict[str, float] = OrderedDict()
        self._running: set[asyncio.Future[str | None]] = set()

    async def digest(self, folder: str) -> str | None:
        """Digest of a folder's project; None if there is none in time."""
        now = self._monotonic()
        if self._resting.get(folder, now) > now or len(self._running) >= _MAX_AT_ONCE:
            return None
        computed = asyncio.ensure_future(asyncio.to_thread(workspace_digest, folder, WITHIN_S))
        self._running.add(computed)
        computed.add_done_callback(self._running.discard)
        await asyncio.wait({computed}, timeout=2 * WITHIN_S + 0.05)  # a file system that hangs holds the thread alone
        found = computed.result() if computed.done() else None
        if found is None and self._monotonic() - now >= WITHIN_S:
            self._resting[folder] = self._monotonic() + PAUSE_S
            while len(self._resting) > MAX_PROJECTS:
                self._resting.popitem(last=False)
        return found


class DigestEvidence:
    """Digests of one session that are proof of change or of none.

    A digest shows the project's files alone. An equal one is no proof if a call of the session has succeeded since that
    may have changed something else: a database, a service, an ignored file. Such calls of other sessions, which the
    events of this one do not show, are part of its digests.
    """

    def __init__(self, changes: Counter[str] | None = None) -> None:
        """Start without a digest; `changes`: number of such calls by workspace, shared by the sessions of a server."""
        self._changes = Counter() if changes is None else changes
        self._own = 0
        self._latest = ("", 0)

    def succeeded(self, tool_name: str, args: Mapping[str, Any], workspace: str = "") -> None:
        """Take note of a successful call."""
        if may_change(tool_name, args):
            self._changes[workspace] += 1
            self._own += 1

    def state(self, digest: str | None, workspace: str = "") -> str | None:
        """Digest to state in an event; None if it would prove what is not known."""
        if digest is None:
            return None
        if others := self._changes[workspace] - self._own:
            digest = blake2b(f"{digest} {others}".encode(), digest_size=16).hexdigest()
        known, made = self._latest
        self._latest = digest, self._own
        return digest if digest != known or made == self._own else None


def may_change(tool_name: str, args: Mapping[str, Any]) -> bool:
    """Whether a call may change something, by its tool and its commands."""
    found = (
        keys.read_command(tool_name, args).line.tool_class
        if keys.runs(tool_name, args) == "shell"
        else tool_class.class_of_tool(tool_name, args)
    )
    return found in {ToolClass.ACTION, ToolClass.UNKNOWN}


def is_evidence(tool_name: str, args: Mapping[str, Any]) -> bool:
    """Whether a failure of a call calls for a digest: that of a shell, or of a tool of unknown effect."""
    return keys.runs(tool_name, args) == "shell" or tool_class.class_of_tool(tool_name, args) is ToolClass.UNKNOWN

"""Finds the coding agent out of whose process tree a command comes, as an agent may not lift what holds it back.

Found are an agent among the parents of this process, and the variables that agents set for the commands they run, in
this process or in a parent. A program that leaves its tree and clears its environment is not found (docs/connect.md).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import NamedTuple

from ..errors import TrustfoldError

# Variables that agents set for their commands alone; seen with the programs themselves, but for Cursor's
MARKS = {
    "CLAUDECODE": "Claude Code",
    "CODEX_THREAD_ID": "Codex",
    "CODEX_SANDBOX": "Codex",
    "GEMINI_CLI": "Gemini CLI",
    "QWEN_CODE": "Qwen Code",
    "COPILOT_CLI": "Copilot CLI",
    "OPENCODE": "OpenCode",
    "CURSOR_AGENT": "Cursor",
}

# Names of agents' programs
PROGRAMS = {
    "claude": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "qwen": "Qwen Code",
    "copilot": "Copilot CLI",
    "opencode": "OpenCode",
    "cursor-agent": "Cursor",
}

# Folders of agents that an interpreter runs
PACKAGES = {
    "@anthropic-ai/claude-code": "Claude Code",
    "@openai/codex": "Codex",
    "@google/gemini-cli": "Gemini CLI",
    "@qwen-code/qwen-code": "Qwen Code",
    "@github/copilot": "Copilot CLI",
    "opencode-ai": "OpenCode",
}

RUNNERS = frozenset({"node", "bun", "deno"})

MAX_PARENTS = 100

PS_S = 5.0


class ProcessInfo(NamedTuple):
    """A process: id, arguments, and environment, empty where it cannot be read."""

    number: int
    words: tuple[str, ...] = ()
    environ: Mapping[str, str] = {}


def order_of_an_agent() -> str:
    """Why this command may give no orders: an agent runs it; empty if none does."""
    found = agent_behind((ProcessInfo(os.getpid(), (), os.environ), *parents(os.getpid())))
    if not found:
        return ""
    return f"{found}, and an agent may not lift what holds it back; give this order in a terminal of your own"


def refuse_agents() -> None:
    """Refuse to go on if an agent runs this command."""
    if refusal := order_of_an_agent():
        raise TrustfoldError(refusal)


def agent_behind(processes: Iterable[ProcessInfo]) -> str:
    """Return the sign of an agent among a process and its parents, as text; empty without one."""
    for process in processes:
        for mark, agent in MARKS.items():
            if process.environ.get(mark):
                return f"this command comes out of {agent} ({mark} is set)"
        if agent := _agent_of(process.words):
            return f"this command comes out of {agent} (process {process.number})"
    return ""


def _agent_of(words: tuple[str, ...]) -> str:
    """Agent that a command line runs; empty if it is none's."""
    if not words:
        return ""
    program = PurePath(words[0]).name
    if program not in RUNNERS:
        return PROGRAMS.get(program, "")
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    name = PurePath(script).name
    folder = next((agent for package, agent in PACKAGES.items() if f"/{package}/" in script), "")
    return folder or PROGRAMS.get(name, "")


def parents(number: int) -> list[ProcessInfo]:
    """The parents of a process, nearest first, as far as they can be seen."""
    if Path("/proc/self/status").exists():
        return _parents_by_proc(number)
    return _parents_by_ps(number)


def _parents_by_proc(number: int) -> list[ProcessInfo]:
    found: list[ProcessInfo] = []
    while len(found) < MAX_PARENTS:
        try:
            status = Path(f"/proc/{number}/stat").read_text(errors="replace")
            number = int(status.rpartition(")")[2].split()[1])
            words = _words(f"/proc/{number}/cmdline") if number else []
        except (OSError, ValueError, IndexError):
            break
        if not number:
            break
        try:
            environ = dict(word.partition("=")[::2] for word in _words(f"/proc/{number}/environ"))
        except OSError:  # of another user
            environ = {}
        found.append(ProcessInfo(number, tuple(words), environ))
    return found


def _words(path: str) -> list[str]:
    return Path(path).read_bytes().decode(errors="replace").rstrip("\0").split("\0")


def _parents_by_ps(number: int) -> list[ProcessInfo]:
    """Parents without /proc (macOS); their environment cannot be read there."""
    try:
        done = subprocess.run(
            ["/bin/ps", "-axww", "-o", "pid=,ppid=,command="], capture_output=True, timeout=PS_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return _parents_in(number, done.stdout.decode(errors="replace"))


def _parents_in(number: int, table: str) -> list[ProcessInfo]:
    rows = [line.split(None, 2) for line in table.splitlines()]
    known = {int(row[0]): (int(row[1]), row[2]) for row in rows if len(row) == 3 and row[0].isdigit()}
    found: list[ProcessInfo] = []
    while len(found) < MAX_PARENTS and number in known:
        number = known[number][0]
        if number in known:
            found.append(ProcessInfo(number, tuple(known[number][1].split())))
    return found

"""Commands and deletions in a program that is given on a command line: `python -c …`, `node -e …`, `perl -e …`.

No parser of any language: calls that run a command, with the text that they are given. Text that a program prints or
hands to functions of its own is none of them.
"""

from __future__ import annotations

import re

_RUNNERS = frozenset(
    "os subprocess sp commands pty asyncio child_process cp execa Kernel IO Open3 shelljs Deno".split()
)
_CALLS = re.compile(
    r"(?:(?P<on>[\w)\]]{1,40})\s{0,4}\.\s{0,4})?\b(?P<name>system|popen|Popen|exec\w{0,20}|spawn\w{0,20}|run|call|check_call|check_output"
    r"|getoutput|getstatusoutput|create_subprocess_\w{1,20})\b"
    r"\s{0,8}(?:\(\s{0,80}|(?=['\"]))(?:r?(?P<quote>['\"`])(?P<text>.*?)(?P=quote)(?P<more>\s*,\s*(?:\[[^\]]{0,400}\]|['\"][^'\"]*['\"]"
    r"(?:\s*,\s*['\"][^'\"]*['\"])*))?|\[(?P<words>[^\]]{0,400})\])",
    re.DOTALL,
)
_ALWAYS = frozenset(
    {"system", "popen", "Popen", "exec", "execSync", "execFileSync", "spawn", "spawnSync", "check_output"}
)
"""Names that run a command by themselves; others do so only if the program names their module."""

_LISTED = re.compile(r"['\",\[\]]")
_HOME = r"Path\.home\(\)|os\.environ\[['\"]HOME['\"]\]|process\.env\.HOME|os\.homedir\(\)|homedir\(\)"
_TREES = re.compile(
    r"\b(?:rmtree|rmSync|rmdirSync|removeSync|rm_rf|rm_r|remove_entry_secure|rimraf)(?:\s*\(\s*|\s+(?=['\"]))"
    rf"(?:(?:[\w.]*\b(?:expanduser|Path|str)\(\s*)?(?P<quote>['\"`])(?P<path>.*?)(?P=quote)"
    rf"|(?:[\w.]*\bstr\(\s*)?(?:\w+\.)?(?P<home>{_HOME}))",
    re.DOTALL,
)
_BACKTICKS = re.compile(r"(?<![\w(])`([^`]+)`")


def lines_in(program: str, *, backticks: bool = False) -> list[str]:
    """Return the command lines that a program runs. `backticks`: text in them is one, as in Perl, Ruby and PHP."""
    lines: list[str] = []
    for found in _CALLS.finditer(program):
        on, name = found["on"] or "", found["name"]
        if on and on[-1] not in ")]" and on not in _RUNNERS:
            continue  # somebody else's `run`
        if not on and name not in _ALWAYS and "subprocess" not in program and "child_process" not in program:
            continue
        text = found["text"] if found["text"] is not None else _LISTED.sub(" ", found["words"])
        lines.append(text + _LISTED.sub(" ", found["more"] or ""))
    return lines + (_BACKTICKS.findall(program) if backticks else [])


def trees_in(program: str) -> list[str]:
    """Return the paths of trees that a program removes."""
    return [found["path"] if found["path"] is not None else "~" for found in _TREES.finditer(program)]

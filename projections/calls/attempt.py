"""Tells what a call would do before it runs: its danger under the rules, the level of that, and its key.

The folds, the guard and every check of a call before it runs ask here, so that they agree (docs/trust.md, Before the
harm).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...rules.calls import CallRules, DangerLevel
from ...schemas.vocabulary import DangerKind, ToolClass
from ...security.redaction import redact_text
from . import keys
from .classify import Runs
from .command_line import CommandLine
from .danger import NO_DANGER, WRITES_CREDENTIALS, CallDanger, danger_of_program, matches_any, writes_credentials
from .destruction import destroyed_by_tool
from .fingerprints import canonical
from .tool_class import class_by_name

MAX_SHOWN = 120  # Number of characters of a command that a person is shown

_PROGRAM_ARGS = ("code", "script", "source", "program", "expression")
_PARAMETER = "|danger="


def danger_in(
    tool_name: str, args: Mapping[str, Any], runs: Runs, line: CommandLine | None, rules: CallRules
) -> CallDanger:
    """Return the danger of a call under the rules; `line` is its command line where it has one."""
    found = danger_of_call(tool_name, args, runs, line)
    return danger_by_patterns(found, args, line, rules) if has_patterns(rules) else found


def has_patterns(rules: CallRules) -> bool:
    """Whether the rules have patterns of their own for what is dangerous or not."""
    return bool(rules.security_patterns or rules.risky_patterns or rules.security_allow)


def danger_by_patterns(
    found: CallDanger, args: Mapping[str, Any], line: CommandLine | None, rules: CallRules
) -> CallDanger:
    """Return the danger of a call by the rules' patterns, given what is `found` without them."""
    text = keys.shell_command(args) if line is not None else canonical(dict(args)).decode()
    if matches_any(text, rules.security_allow):
        return NO_DANGER
    if not found.blocks and matches_any(text, rules.security_patterns):
        return CallDanger(DangerKind.PATTERN, HARMS[DangerKind.PATTERN])
    if found.kind is None and matches_any(text, rules.risky_patterns):
        return CallDanger(DangerKind.RISKY_PATTERN, HARMS[DangerKind.RISKY_PATTERN])
    return found


def danger_of_call(tool_name: str, args: Mapping[str, Any], runs: Runs, line: CommandLine | None) -> CallDanger:
    """Return the danger of a call whatever the rules: of its command line, a file's tool, a program, a database's."""
    if line is not None:
        return line.danger
    path = args.get("path") or args.get("file_path")
    if isinstance(path, str) and writes_credentials(path) and class_by_name(tool_name) is ToolClass.ACTION:
        return CallDanger(DangerKind.CREDENTIALS, WRITES_CREDENTIALS)
    if runs == "code":
        program = next((text for name in _PROGRAM_ARGS if isinstance(text := args.get(name), str)), "")
        return danger_of_program(program)
    found = destroyed_by_tool(tool_name, args)
    return CallDanger(DangerKind.DATABASE, found) if found else NO_DANGER


def level_of(kind: DangerKind, rules: CallRules) -> DangerLevel:
    """Return what is done about calls of a kind before they run."""
    level: DangerLevel = getattr(rules.danger, kind)
    return level


def keyed(key: keys.CallKey, danger: CallDanger) -> keys.CallKey:
    """Return the key of a dangerous call, which names what it does in place of its command or its directory.

    So its failure is charged neither to its command (`rm`) nor to its tool.
    """
    if danger.kind is None:
        return key
    kept = f"|mcp_server={key.service}" if key.kind == "mcp" else ""
    tool, _ = keys.parse_key(key.fine)
    return key._replace(fine=f"{tool}{_PARAMETER}{danger.kind}{kept}")


def danger_of_key(key: str) -> DangerKind | None:
    """Return the kind of danger in a key; None if it is that of an ordinary call."""
    _, found, rest = key.partition(_PARAMETER)
    kind = rest.partition("|")[0]
    return DangerKind(kind) if found and kind in _KINDS else None


_KINDS = frozenset(DangerKind)

# What calls of each kind would do, where the call itself is not known
HARMS = {
    DangerKind.ROOT: "remove or change a root, system or home directory",
    DangerKind.DISK: "overwrite or erase a disk",
    DangerKind.CREDENTIALS: "write or remove a store of credentials",
    DangerKind.FORK_BOMB: "start processes without end",
    DangerKind.PATTERN: "match a security pattern of the rules",
    DangerKind.DOWNLOAD: "run a download or decoded text at once",
    DangerKind.FORCED_PUSH: "overwrite a remote branch by force",
    DangerKind.DATABASE: "drop or empty tables of a database",
    DangerKind.RESOURCES: "destroy what others may use",
    DangerKind.ABOVE: "remove what lies above its directory",
    DangerKind.PRIVILEGED: "run a destructive command as somebody else",
    DangerKind.RISKY_PATTERN: "match a risky pattern of the rules",
}


def words_for(danger: CallDanger, tool_name: str, args: Mapping[str, Any]) -> str:
    """Return what a call would do as a sentence without its end, with the command that a person would recognise."""
    command = " ".join(redact_text(keys.shell_command(args)).split())
    if len(command) > MAX_SHOWN:
        command = f"{command[: MAX_SHOWN - 1]}…"
    return f"`{command or tool_name}` would {danger.text}"

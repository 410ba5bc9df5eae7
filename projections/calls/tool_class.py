"""Classifies tools: does a call read, act, list tools, plan, or poll? (docs/classification.md).

Configuration first, then MCP annotations on the event, then the name; shell tools by their command words.
What is not known stays unknown, and unknown never counts as an action.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from ...schemas.vocabulary import ToolClass
from .shell import SimpleCommand

_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_READ = frozenset(
    """read get list search find view show fetch query grep glob ls cat head tail describe lookup inspect
    browse scan count diff retrieve load open calculate analyze analyse peek stat""".split()
)
_ACTION = frozenset(
    """write edit update create delete remove move rename apply patch insert replace append set send post put
    commit push install save book cancel modify multiedit notebookedit upload publish deploy merge add submit
    transfer restart start stop kill mkdir touch click type fill exchange return str""".split()
)
_PLANNING = frozenset("plan todo todos think thought planner planning reason reflect".split())
_POLL = frozenset("poll wait sleep status progress".split())
_TOOL_WORDS = frozenset("tool tools toolset schema schemas capability capabilities skills".split())
_EXACT = {
    "askpermission": ToolClass.INTROSPECTION,
    "toolsearch": ToolClass.INTROSPECTION,
    "bashoutput": ToolClass.POLL,
    "taskoutput": ToolClass.POLL,
    "write_stdin": ToolClass.POLL,
    "exitplanmode": ToolClass.PLANNING,
    "enterplanmode": ToolClass.PLANNING,
    "task": ToolClass.UNKNOWN,
    "agent": ToolClass.UNKNOWN,
    "str_replace_editor": ToolClass.UNKNOWN,
}

_READ_COMMANDS = frozenset(
    """ls cat grep egrep fgrep rg ag head tail wc less more find fd tree stat file du df pwd echo printf which
    whereis type env printenv date whoami id uname hostname ps top sort uniq cut tr awk gawk jq yq column diff
    cmp md5sum sha1sum sha256sum basename dirname realpath readlink nl od xxd strings seq test [ true false cd
    history man tac comm join paste expr bat command type pgrep lsof""".split()
)
_ACTION_COMMANDS = frozenset(
    """rm mv cp mkdir rmdir touch tee ln chmod chown truncate dd patch install unzip tar rsync kill pkill
    docker-compose systemctl service apt apt-get brew make-install sponge""".split()
)
_READ_SUBCOMMANDS = {
    "git": frozenset(
        """status log diff show branch blame grep ls-files ls-tree rev-parse describe remote config reflog
        shortlog cat-file fetch rev-list merge-base for-each-ref worktree""".split()
    ),
    "gh": frozenset("view list status checks diff search".split()),
    "docker": frozenset("ps images logs inspect version info".split()),
    "kubectl": frozenset("get describe logs version".split()),
    "npm": frozenset("ls list view outdated".split()),
    "pip": frozenset("list show freeze check".split()),
    "go": frozenset("list version env doc".split()),
    "cargo": frozenset("tree metadata search".split()),
}
_ACTION_SUBCOMMANDS = {
    "git": frozenset(
        """add commit push checkout switch merge rebase reset stash pull rm mv restore cherry-pick revert tag
        clone init apply am""".split()
    ),
    "gh": frozenset("create merge close edit comment review delete".split()),
    "npm": frozenset("install i ci uninstall update publish".split()),
    "pip": frozenset("install uninstall".split()),
    "cargo": frozenset("add install remove publish".split()),
    "go": frozenset("get install mod".split()),
}

_READ_CMDLETS = "Get Test Select Measure Find Show Compare Resolve Where Sort Group Format ConvertTo ConvertFrom Read"
_ACTION_CMDLETS = """Remove Set New Add Clear Copy Move Rename Start Stop Restart Install Uninstall Update Enable
    Disable Export Import Publish Save Expand Compress Push"""
_CMDLET = re.compile(r"([A-Z][A-Za-z]+)-[A-Z][A-Za-z]*\Z")
_BY_VERB = {
    **dict.fromkeys(_READ_CMDLETS.split(), ToolClass.READ),
    **dict.fromkeys(_ACTION_CMDLETS.split(), ToolClass.ACTION),
}
"""Verbs of PowerShell's cmdlets (`Get-Content`), as they are written: with capitals, unlike any POSIX command."""

_WINDOWS_COMMANDS = {
    **dict.fromkeys("dir findstr where tasklist systeminfo gci gc sls".split(), ToolClass.READ),
    **dict.fromkeys(
        "del erase rd ri ni md copy xcopy robocopy move ren rename taskkill setx attrib icacls".split(),
        ToolClass.ACTION,
    ),
}

_BY_COMMAND = {
    **_WINDOWS_COMMANDS,
    "sleep": ToolClass.POLL,
    **dict.fromkeys(_READ_COMMANDS - {"find"}, ToolClass.READ),
    **dict.fromkeys(_ACTION_COMMANDS, ToolClass.ACTION),
}
"""Commands that are classified by their name alone."""


@lru_cache(maxsize=4096)
def class_by_name(tool_name: str) -> ToolClass:
    """Return the class that a tool's name suggests, without the server of an MCP tool's name."""
    plain = tool_name.rsplit("__", 1)[-1]
    exact = _EXACT.get(plain.lower())
    if exact is not None:
        return exact
    words = [word.lower() for word in _WORDS.findall(plain)]
    if not words:
        return ToolClass.UNKNOWN
    if _TOOL_WORDS.intersection(words) and (words[0] in _READ or words[0] in _TOOL_WORDS):
        return ToolClass.INTROSPECTION
    if _PLANNING.intersection(words):
        return ToolClass.PLANNING
    for word in words:
        if word in _ACTION:
            return ToolClass.ACTION
        if word in _POLL:
            return ToolClass.POLL
        if word in _READ:
            return ToolClass.READ
    return ToolClass.UNKNOWN


def _class_of(command: SimpleCommand) -> ToolClass:
    if command.writes:
        return ToolClass.ACTION
    name = command.name
    if (plain := _BY_COMMAND.get(name)) is not None:
        return plain
    if "-" in name and name[:1].isupper() and (cmdlet := _CMDLET.match(name)) is not None:
        if name in {"Out-File", "Tee-Object"}:
            return ToolClass.ACTION
        return _BY_VERB.get(cmdlet.group(1), ToolClass.READ if name.startswith("Out-") else ToolClass.UNKNOWN)
    subcommand = next((word for word in command.words[1:] if not word.startswith("-")), "")
    if name == "gh" and subcommand:
        verbs = [word for word in command.words[1:4] if not word.startswith("-")]
        subcommand = verbs[1] if len(verbs) > 1 else subcommand
    if name in {"sed", "perl"}:
        in_place = any(word.startswith("-i") or word == "--in-place" for word in command.words[1:])
        return ToolClass.ACTION if in_place else ToolClass.READ if name == "sed" else ToolClass.UNKNOWN
    if name == "find" and {"-delete", "-exec", "-execdir"}.intersection(command.words):
        return ToolClass.UNKNOWN
    if name in _READ_COMMANDS or subcommand in _READ_SUBCOMMANDS.get(name, ()):
        return ToolClass.READ
    if subcommand in _ACTION_SUBCOMMANDS.get(name, ()):
        return ToolClass.ACTION
    return ToolClass.UNKNOWN


def class_of_commands(commands: Iterable[SimpleCommand]) -> ToolClass:
    """Return the class of a shell command line: action if any command acts, read only if every command reads."""
    found = {_class_of(command) for command in commands}
    if ToolClass.ACTION in found:
        return ToolClass.ACTION
    if not found or ToolClass.UNKNOWN in found:
        return ToolClass.UNKNOWN
    return ToolClass.READ if ToolClass.READ in found else ToolClass.POLL


def class_by_annotations(annotations: Mapping[str, Any]) -> ToolClass | None:
    """Class declared by MCP hints: `readOnlyHint` reads; `destructiveHint` or an explicit not-read-only acts."""
    read_only = annotations.get("readOnlyHint", annotations.get("read_only_hint"))
    if read_only is True:
        return ToolClass.READ
    if read_only is False or annotations.get("destructiveHint", annotations.get("destructive_hint")) is True:
        return ToolClass.ACTION
    return None


_ACTION_WORD_ARGS = ("action", "operation", "op", "subcommand", "method")
_HTTP_METHODS = {"get": ToolClass.READ, "head": ToolClass.READ, "options": ToolClass.READ}


def class_by_args(args: Mapping[str, Any]) -> ToolClass:
    """Return the class named by an `action`-like argument (`{"action": "poll"}`, `{"method": "POST"}`)."""
    for name in _ACTION_WORD_ARGS:
        word = args.get(name)
        if isinstance(word, str) and word:
            lower = word.lower()
            return _HTTP_METHODS.get(lower) or class_by_name(lower)
    return ToolClass.UNKNOWN

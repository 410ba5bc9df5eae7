"""Dangerous commands: what a *failed* call tried to do that no agent should (design 3, Failure classification).

Judged on the parsed command, never on free error text: a message that merely says "security" blocks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from .shell import SimpleCommand

_FUNCTION = re.compile(r"\(\s*\)\s*\{")
_FORK_BOMB = re.compile(r"(\S{1,32})\s*\(\s*\)\s*\{[^}]{0,100}\1\s*\|\s*\1\s*&")
_ROOTS = re.compile(
    r"""^(?:/+\*?|~/?\*?|\$\{?HOME\}?/?\*?|/(?:home|root|Users)(?:/[^/]+)?/?\*?
        |/(?:etc|usr|bin|sbin|lib|lib64|boot|var|dev|sys|proc|opt)/?\*?|[A-Za-z]:\\?\*?|\.\.?/?\*?(?<=/\*\*))$""",
    re.VERBOSE,
)
_CREDENTIALS = re.compile(
    r"(?:^|/)(?:\.ssh(?:/|$)|\.aws/credentials|\.netrc|\.git-credentials|\.pgpass|\.kube/config|\.docker/config\.json"
    r"|\.gnupg(?:/|$))|^/etc/(?:passwd|shadow|sudoers(?:\.d)?|gshadow)(?:/|$)"
)
_NEAR_CREDENTIALS = (".ssh", ".aws", ".netrc", ".git-c", ".pgpass", ".kube", ".docker", ".gnupg", "/etc")
"""One of these stands in every path that `_CREDENTIALS` finds; a cheap look first."""
_DOWNLOADERS = frozenset({"curl", "wget", "fetch"})
_INTERPRETERS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "python", "python3", "perl", "ruby", "node", "php"})
_DESTRUCTIVE = frozenset({"rm", "shred", "wipefs", "fdisk", "dd", "chmod", "chown", "mkfs", "userdel", "passwd"})

_HARMFUL = _DESTRUCTIVE | {"tee", "cp", "mv", "ln", "sed", "truncate", "install"}
"""Commands that `_danger_of` knows by name."""


def _short_flags(command: SimpleCommand) -> set[str]:
    return {
        letter
        for word in command.words[1:]
        if word.startswith("-") and not word.startswith("--")
        for letter in word[1:]
    }


def _recursive(command: SimpleCommand) -> bool:
    return bool(_short_flags(command) & {"r", "R"}) or "--recursive" in command.words


def _on_root(command: SimpleCommand) -> bool:
    return "--no-preserve-root" in command.words or any(
        _ROOTS.match(word) for word in command.words[1:] if not word.startswith("-")
    )


def _danger_of(command: SimpleCommand, previous: SimpleCommand | None) -> str:
    name = command.name
    if name.startswith("mkfs"):
        return "makes a file system"
    if name == "dd" and any(re.match(r"of=/dev/(?!null|zero|stdout|stderr|tty)", word) for word in command.words):
        return "writes to a device"
    if name == "rm" and _recursive(command) and _on_root(command):
        return "removes a root or home directory"
    if name in {"chmod", "chown"} and _recursive(command) and _on_root(command):
        return "changes a whole root or home directory"
    if (
        command.privileged
        and (name in _DESTRUCTIVE or name.startswith("mkfs"))
        and (name not in {"rm", "chmod", "chown"} or _recursive(command))
    ):
        return "runs a destructive command as root"
    if command.piped and name in _INTERPRETERS and previous is not None and previous.name in _DOWNLOADERS:
        return "pipes a download into an interpreter"
    targets = list(command.writes)
    if name in {"tee", "cp", "mv", "ln", "sed", "truncate", "install"} and (
        name != "sed" or any(word.startswith("-i") for word in command.words)
    ):
        targets += [word for word in command.words[1:] if not word.startswith("-")][-1:]
    if any(_CREDENTIALS.search(target) for target in targets):
        return "writes to a credential path"
    return ""


def danger_of(line: str, commands: Iterable[SimpleCommand]) -> str:
    """What is dangerous about a command line and its commands, in a few words; empty if nothing is."""
    if "{" in line and _FUNCTION.search(line) and _FORK_BOMB.search(line):
        return "is a fork bomb"
    previous = None
    for command in commands:
        if (_may_harm(command) or command.privileged or command.piped or command.writes) and (
            found := _danger_of(command, previous)
        ):
            return found
        previous = command
    return ""


def is_suspect(line: str, commands: Iterable[SimpleCommand]) -> bool:
    """Whether a command line is dangerous if its refusal says so: run as root, evaluated, or after credentials."""
    near_credentials = any(needle in line for needle in _NEAR_CREDENTIALS)
    for command in commands:
        if command.privileged or command.name == "eval":
            return True
        if near_credentials and any(_CREDENTIALS.search(word) for word in command.words[1:]):
            return True
    return False


def _may_harm(command: SimpleCommand) -> bool:
    """A cheap look first: nearly every command is innocent and must not cost more."""
    name = command.name
    return name in _HARMFUL or name.startswith("mkfs")


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in patterns)


def matches_any(text: str, patterns: Iterable[str]) -> bool:
    """Whether one of the operator's own patterns matches."""
    return any(pattern.search(text) for pattern in _compiled(tuple(patterns)))


def writes_credentials(path: str) -> bool:
    """Whether a file tool's target path holds credentials."""
    if "/." not in path and not path.startswith((".", "/etc/")):
        return False  # the usual case: nothing that `_CREDENTIALS` could find
    return bool(_CREDENTIALS.search(path))

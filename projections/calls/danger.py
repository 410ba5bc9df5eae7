"""Detects dangerous calls from their arguments (docs/trust.md, Before the harm).

Judged on the parsed command, never on free error text: a message that merely says "security" blocks nothing.
*Dangerous* is the destruction of a root, system or home directory, a write to a raw disk or to a store of credentials,
a fork bomb: its failure blocks its key. Its failure only escalates it if it is *risky*: a download or decoded text that
runs at once, what is destroyed beyond the machine (`destruction`), and a destructive command as somebody else.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ...schemas.vocabulary import DangerKind
from .destruction import PROGRAMS, destroyed_by, has_sign, may_destroy, occurs
from .shell import MAX_COMMAND_CHARS, PRIVILEGE_WRAPPERS, SimpleCommand
from .unfold import (
    DOWNLOADERS,
    INTERPRETERS,
    RUNNERS,
    UnfoldedCommand,
    decodes_into,
    input_of,
    interpreter,
    is_narrowed,
    runs_its_input,
    steps_of,
    steps_of_program,
    unquoted,
)


class CallDanger(NamedTuple):
    """Danger of a call: the kind of harm, in words, and the command that would do it."""

    kind: DangerKind | None = None  # kind of harm; None for nearly all calls
    text: str = ""  # the same in words, as they follow "would"
    command: str = ""  # word of the command that would do it; empty if it is the call as a whole

    @property
    def blocks(self) -> bool:
        """Whether a failure blocks its key at once; that of a risky one escalates it."""
        return self.kind in _BLOCKING


NO_DANGER = CallDanger()
_BLOCKING = frozenset(
    {DangerKind.ROOT, DangerKind.DISK, DangerKind.CREDENTIALS, DangerKind.FORK_BOMB, DangerKind.PATTERN}
)
_RANK = {kind: place for place, kind in enumerate(DangerKind)}  # Of several dangers of one line the first kind is told

_FORK_BOMB = re.compile(
    r"(?:function\s{1,8})?([^\s;&|(){}]{1,32})\s{0,8}(?:\(\s{0,8}\)|(?<=\w))\s{0,8}\{[^}]{0,100}?(?<!\w)\1\s{0,8}\|\s{0,8}\1\s{0,8}&"
)
_SYSTEM = (
    r"etc|usr|bin|sbin|lib|lib32|lib64|boot|var|dev|sys|proc|opt|srv|root|System|Library|Applications"
    r"|usr/(?:bin|sbin|lib|lib64|share|local|include)|var/lib|etc/ssh"
    r"|var/lib/(?:postgresql|pgsql|mysql|mariadb|mongodb|redis|docker|etcd|kubelet|elasticsearch|rabbitmq|cassandra)"
)
_ROOT = re.compile(rf"/(?:[*?]+|\.\*|(?:{_SYSTEM})(?:/\*)?|(?:home|Users)(?:/[^/]+(?:/\*|/\.\*)?)?)?\Z")
_HOME = re.compile(
    r"(?:~[\w.-]*|\$\{?HOME\}?|\$\{?env\}?:(?:USERPROFILE|HOME\w*)|%(?:USERPROFILE|HOMEPATH)%)(?=[/\\]|\Z)",
    re.IGNORECASE,
)
_WINDOWS_ROOT = re.compile(
    r"""(?:[a-z]:|%systemdrive%|\$\{?env\}?:systemdrive)[\\/]*
        (?:\*(?:\.\*)?|(?:windows|program\ ?files(?:\ \(x86\))?|programdata|users(?:[\\/]+[^\\/]+)?)[\\/]*\*?)?\Z
      | (?:%systemroot%|%windir%|\$\{?env\}?:(?:systemroot|windir))[\\/]*\*?\Z""",
    re.IGNORECASE | re.VERBOSE,
)
_DRIVE = re.compile(r"[a-z]:[\\/]*\Z", re.IGNORECASE)
_DEEP = re.compile(r"(?:/[a-rt-z])*/s(?:/[a-z])*\Z")
_ABOVE = re.compile(r"\.\.(?:/\.\.)*(?:/\*)?/?\Z")
_CHOICE = re.compile(r"\{([^{},]*,[^{}]*)\}")
_MAX_CHOICES = 32
_CREDENTIALS = re.compile(
    r"(?:^|/)(?:\.ssh(?:/(?!known_hosts)|$)|\.aws/credentials|\.netrc|\.git-credentials|\.pgpass|\.kube/config"
    r"|\.docker/config\.json|\.gnupg(?:/|$))|^/etc/(?:passwd|shadow|sudoers(?:\.d)?|gshadow)(?:/|$)"
)
_CREDENTIAL_STORE = re.compile(
    r"(?:^|/)\.(?:ssh|gnupg|aws|kube|password-store)/?\*?\Z|^/etc/(?:passwd|shadow|sudoers)\Z"
)
# Every path that `_CREDENTIALS` matches contains one of these; a fast pre-check
_NEAR_CREDENTIALS = (".ssh", ".aws", ".netrc", ".git-c", ".pgpass", ".kube", ".docker", ".gnupg", "/etc")

_RAW_DISK = re.compile(
    r"/dev/(?:disk/|sd[a-z]|hd[a-z]|vd[a-z]|xvd[a-z]|nvme\d|mmcblk\d|r?disk\d|dm-\d|mapper/|md\d|k?mem\b|port\b)"
    r"|[\\/]{2}\.[\\/]PhysicalDrive",
    re.IGNORECASE,
)
_ONLY_RECURSIVE = frozenset({"rm", "chmod", "chown", "chgrp"})
_DESTRUCTIVE = _ONLY_RECURSIVE | frozenset(
    "shred wipefs fdisk sfdisk sgdisk parted dd userdel groupdel passwd truncate unlink find".split()
)
_DISK_TOOLS = frozenset("shred wipefs blkdiscard sgdisk parted tee cp mv truncate".split())
_WRITERS = frozenset({"tee", "cp", "mv", "ln", "sed", "truncate", "install"})
_WINDOWS_COMMANDS = frozenset(
    "remove-item rd ri rmdir del erase format format-volume clear-disk initialize-disk".split()
)
_HARMFUL = (
    _DESTRUCTIVE
    | _WRITERS
    | _WINDOWS_COMMANDS
    | {name.title() for name in _WINDOWS_COMMANDS}
    | {"mkfs", "mke2fs", "mkswap", "newfs", "blkdiscard", "diskutil", "rsync"}
    | {"iex", "Invoke-Expression", "invoke-expression", "IEX"}
)
_REMOVES = "remove a root, system or home directory"
WRITES_CREDENTIALS = "write to a store of credentials"
_FIND_RUNS = frozenset({"-exec", "-execdir"})
_NEEDLES = (
    "rm ", "rm$", "rm'", 'rm"', "dd ", "shred", "mkfs", "wipefs", "chmod", "chown", "chgrp", "unlink", "rmtree",
    "Sync", "rm_r", "mv ", "curl", "wget", "base64", "-delete", "/dev/", "iwr ", "irm ", "iex", "Download",
    "Remove-Item", "Format-", "Clear-Disk", "tee ", "> ~", "> /", ">/", ">~", "| sh", "|sh", "| bash", "|bash",
)  # fmt: skip
# Every harmful line contains one of these, unless it is oddly spelt; then `_OBFUSCATION` matches
_DANGEROUS_WORDS = re.compile(
    r"\b(?:rm|dd|shred|mkfs|wipefs|chmod|chown|chgrp|unlink|rmtree|rmSync|mv|curl|wget|base64|iwr|irm|iex|tee)\b"
    r"|rm_rf?\b|rmdirSync|removeSync|\|\s*(?:ba)?sh\b"
    r"|-delete\b|/dev/[a-z]|>\s*[\"']?(?:~|\$HOME|/)|Download(?:String|Data)|Remove-Item|Format-|Clear-Disk",
)

_OBFUSCATION = re.compile(r"\\x[0-9a-f]{2}|\\[0-7]{3}|\$IFS|\$\{IFS|\w(?:''|\"\")\w|\beval\b", re.IGNORECASE)
# Every line that `_OBFUSCATION` matches contains one of these in lower case; a fast pre-check
_OBFUSCATION_SIGNS = ("\\", "$ifs", "${ifs", "''", '""', "eval")

_NOTHING = "/dev/null"
_TO_NOTHING = re.compile(rf">\s*{_NOTHING}(?=[\s;&|)]|\Z)")  # What many lines write to, and none does harm with

_POWERSHELL_DOWNLOAD = re.compile(
    r"\b(?:iwr|irm|curl|wget|Invoke-WebRequest|Invoke-RestMethod)\b|Download(?:String|Data)\s*\(", re.IGNORECASE
)
_POWERSHELL_RUN = re.compile(r"(?:^|[|;&({\s])(?:iex|Invoke-Expression)\b", re.IGNORECASE)


def danger_of(line: str, commands: Sequence[SimpleCommand]) -> CallDanger:
    """Return the danger of a command line, given with its commands as `shell` parses them."""
    seen = _TO_NOTHING.sub("", line) if _NOTHING in line else line
    if not (len(line) > MAX_COMMAND_CHARS and _has_sign(line)) and not _may_be_dangerous(seen, commands):
        return NO_DANGER  # a longer line may hold something behind the part that `shell` reads
    if ":\\" in line:
        line = line.replace("\\", "/")  # paths of Windows, in which nothing is escaped
    forks = "{" in line and "|" in line and "&" in line and ("(" in line or "function" in line)
    if forks and occurs(_FORK_BOMB, line):
        return CallDanger(DangerKind.FORK_BOMB, "start processes without end")
    fetches = _POWERSHELL_RUN.search(line) is not None and _POWERSHELL_DOWNLOAD.search(line) is not None
    return _worst_of(steps_of(line), CallDanger(DangerKind.DOWNLOAD, _RUNS_DOWNLOAD) if fetches else NO_DANGER)


def danger_of_program(program: str) -> CallDanger:
    """Return the danger of a program in another language than a shell's: that of the commands that it runs."""
    return _worst_of(steps_of_program(program)) if _has_sign(program) else NO_DANGER


def _worst_of(steps: Iterable[UnfoldedCommand], worst: CallDanger = NO_DANGER) -> CallDanger:
    for step in steps:
        found = _danger_of(step) or _risk_of(step)
        if found is not None and (worst.kind is None or _RANK[found[0]] < _RANK[worst.kind]):
            worst = CallDanger(*found, step.name)
    return worst


_RUNS_DOWNLOAD = "run a download at once"


# What a line contains whose parts make a command word; without it the line itself does not say what it runs
_SPELLERS = ("=", "for ", "-c", "echo", "printf", "cat", "base", "openssl", "xxd", "uudecode", "rev", "alias", "eval")

_PLAIN_WORD = re.compile(r"[\w-]+")
_WITHOUT_SIGN = _HARMFUL - _WRITERS - {"find"}  # Commands that harm without another sign

# Ways to run text from elsewhere on a line
_INDIRECTION = re.compile(r"\$\(|`|<\(|\balias[ .]|\bfunction |\bxargs |\bchmod \+x|\bchmod 7")


_DIGITS = frozenset("0123456789")
_POWERSHELLS = frozenset({"powershell", "pwsh"})
_WATCHED = _HARMFUL | RUNNERS | DOWNLOADERS
_LINES = 4  # Lines whose answers are kept: each of the commands on a line asks for them, and a line may hold thousands


def _may_be_dangerous(line: str, commands: Sequence[SimpleCommand]) -> bool:
    """Fast pre-check: nearly every command is harmless and must cost no more."""
    for words, writes, privileged, name, _ in commands:
        if name in PROGRAMS and may_destroy(name, words, line):
            return True
        if privileged or (writes and ("/dev/" in line or _near_credentials(line))):
            return True
        if name[-1:] in _DIGITS:
            name = interpreter(name)  # noqa: PLW2901 - of all that follows
        if name in _WATCHED and _is_suspicious(name, words, line):
            return True
        if name.startswith("mkfs") or (words and ("$" in words[0] or "`" in name) and _may_spell(line)):
            return True
    if "() {" in line or "(){" in line or "function " in line:
        return _has_sign(line) or occurs(_FORK_BOMB, line)
    if "$(" in line or "`" in line or "<(" in line or "alias" in line or "xargs" in line or "chmod" in line:
        return _has_sign(line) and _INDIRECTION.search(line) is not None
    return False


def _is_suspicious(name: str, words: Sequence[str], line: str) -> bool:
    """Whether a command that could do harm, or run others that do, needs a full check."""
    if name in _HARMFUL and _may_harm(name, words, line):
        return True
    if name in RUNNERS:
        return name in _POWERSHELLS or _has_sign(line) or _is_obfuscated(line)
    return name in DOWNLOADERS and _near_credentials(line)


@lru_cache(maxsize=_LINES)
def _has_sign(line: str) -> bool:
    """Whether a line contains anything harmful; plain words are checked first, as nearly no line has one."""
    return (any(map(line.__contains__, _NEEDLES)) and _DANGEROUS_WORDS.search(line) is not None) or has_sign(line)


@lru_cache(maxsize=_LINES)
def _may_spell(line: str) -> bool:
    """Whether a line may name a harmful command by substitution."""
    return (
        any(map(line.__contains__, _SPELLERS))
        or _near_credentials(line)
        or _has_sign(line)
        or _is_obfuscated(line)
        or not _WITHOUT_SIGN.isdisjoint(_PLAIN_WORD.findall(line))
    )


@lru_cache(maxsize=_LINES)
def _is_obfuscated(line: str) -> bool:
    lower = line.lower()
    return any(map(lower.__contains__, _OBFUSCATION_SIGNS)) and _OBFUSCATION.search(line) is not None


@lru_cache(maxsize=_LINES)
def _near_credentials(line: str) -> bool:
    return any(map(line.__contains__, _NEAR_CREDENTIALS))


def _may_harm(name: str, words: Sequence[str], line: str) -> bool:
    """Whether a harmful command may reach outside of plain names below its directory."""
    if name in _WRITERS:
        if "/dev/" in line or _near_credentials(line):
            return True
        return name == "mv" and any(word[:1] in "/~$*" and len(word) < 24 for word in words[1:-1])
    if name == "find":
        if "-delete" not in words and (
            _FIND_RUNS.isdisjoint(words)
            or not (any(map(_may_be_harmful, words[1:])) or _has_sign(line) or _is_obfuscated(line))
        ):
            return False
        return not is_narrowed(list(words)) or any("$" in word or "`" in word for word in words)
    if name not in _ONLY_RECURSIVE:
        return True
    recursive = beyond = False
    for word in words[1:]:
        if word[:1] == "-":
            recursive = recursive or word[:2] == "--" or "r" in word or "R" in word
        elif word[:1] == "$":
            recursive = beyond = True  # options may stand in a variable
        elif not beyond:
            beyond = word[:1] in "/~$*.{" or "`" in word or ":" in word or ".." in word
    if recursive:
        return beyond or "cd" in line or "|" in line or "<" in line
    return (beyond and _near_credentials(line)) or "|" in line or "${IFS" in line


def _may_be_harmful(word: str) -> bool:
    """Whether a word may name a harmful command, or one that runs others."""
    name = word.rpartition("/")[2]
    if name in _HARMFUL or (name in RUNNERS and word != ".") or name in PRIVILEGE_WRAPPERS:
        return True  # a dot is the directory in which `find` begins
    return "$" in word or "`" in word


def _recursive(step: UnfoldedCommand) -> bool:
    return any(
        (len(word) > 3 and "--recursive".startswith(word)) or (word[:2] != "--" and ("r" in word or "R" in word))
        for word in step.words[1:]
        if word[:1] == "-"
    )


def _operands(step: UnfoldedCommand) -> list[str]:
    words = [word for word in step.words[1:] if word[:1] != "-"]
    return [_resolved(each, step.directory) for word in words for each in (_choices(word) if "{" in word else (word,))]


def _choices(word: str) -> list[str]:
    """Expand braces (`/{bin,etc}`) to at most `_MAX_CHOICES` words."""
    waiting = [word]
    plain: list[str] = []
    while waiting and len(waiting) + len(plain) < _MAX_CHOICES:
        each = waiting.pop()
        found = _CHOICE.search(each)
        if found is None:
            plain.append(each)
        else:
            choices = found[1].split(",", _MAX_CHOICES)[:_MAX_CHOICES]
            waiting += [each[: found.start()] + one + each[found.end() :] for one in choices]
    return plain + waiting


def _resolved(word: str, directory: str) -> str:
    """Normalise a path: expand home and directory, remove dots and double slashes."""
    path = word
    if path[:1] in {"~", "$", "%"}:
        path = _HOME.sub("/home/~", path, count=1)
    if directory and path[:1] not in {"/", "$", "%", ""} and path[1:2] != ":":
        path = posixpath.join(_resolved(directory, ""), path)
    return posixpath.normpath("/" + path.lstrip("/")) if path[:1] == "/" else path


def _is_root(path: str) -> bool:
    return _ROOT.match(path) is not None or _WINDOWS_ROOT.match(path) is not None


def _moved(step: UnfoldedCommand) -> tuple[list[str], str]:
    """Return sources and target of a command that copies or moves."""
    words = step.words
    for at, word in enumerate(words[:-1]):
        if word in {"-t", "--target-directory"}:
            target = _resolved(words[at + 1], step.directory)
            return [path for path in _operands(step) if path != target], target
    operands = _operands(step)
    return operands[:-1], operands[-1] if operands else ""


def _danger_of(step: UnfoldedCommand) -> tuple[DangerKind, str] | None:
    """Return kind and text of the danger of one command; None without any."""
    name, words = step.name, step.words
    if _writes_to_disk(step):
        return DangerKind.DISK, "write to a raw disk"
    if name.startswith("mkfs") or name in {"mke2fs", "mkswap", "newfs"}:
        operands = _operands(step)
        onto_device = any("/dev/" in word and "/dev/loop" not in word for word in operands)
        return (DangerKind.DISK, "make a file system") if onto_device or not operands else None
    if name == "diskutil" and len(words) > 1 and words[1].lower().startswith(("erase", "zerodisk", "secureerase")):
        return DangerKind.DISK, "erase a disk"
    if name in {"rm", "unlink"} and any(_CREDENTIAL_STORE.search(path) for path in _operands(step)):
        return DangerKind.CREDENTIALS, "remove a store of credentials"
    if name in _ONLY_RECURSIVE and _recursive(step) and any(map(_is_root, _operands(step))):
        return DangerKind.ROOT, _REMOVES if name == "rm" else "change a whole root, system or home directory"
    if name == "mv" and any(map(_is_root, _moved(step)[0])):
        return DangerKind.ROOT, "move a root, system or home directory"
    if name == "rsync" and any(word.startswith("--del") for word in words) and any(map(_is_root, _operands(step)[-1:])):
        return DangerKind.ROOT, _REMOVES
    if name.lower() in _WINDOWS_COMMANDS and (found := _windows_danger(name.lower(), step)):
        return found
    targets = list(step.writes)
    if name in _WRITERS and (name != "sed" or any(word.startswith(("-i", "--in-place")) for word in words)):
        targets += _operands(step) if name == "tee" else [_moved(step)[1]]
    if name == "dd":
        targets += [_resolved(word[3:], step.directory) for word in words if word.startswith("of=")]
    elif name in DOWNLOADERS:
        targets += [words[at + 1] for at, word in enumerate(words[:-1]) if word in {"-o", "-O", "--output"}]
    return (DangerKind.CREDENTIALS, WRITES_CREDENTIALS) if any(map(_CREDENTIALS.search, targets)) else None


def _writes_to_disk(step: UnfoldedCommand) -> bool:
    name, words = step.name, step.words
    if any(map(_RAW_DISK.match, step.writes)):
        return True
    if name == "dd":
        return any(word.startswith("of=") and _RAW_DISK.match(word[3:]) for word in words)
    if name == "parted" and {"-l", "--list", "print"}.intersection(words):
        return False
    return name in _DISK_TOOLS and any(map(_RAW_DISK.match, words[-1:] if name in {"cp", "mv"} else words[1:]))


def _windows_danger(name: str, step: UnfoldedCommand) -> tuple[DangerKind, str] | None:
    lower = [word.lower() for word in step.words[1:]]
    if name in {"format-volume", "clear-disk", "initialize-disk"}:
        return DangerKind.DISK, "erase a disk"
    if name == "format":
        return (DangerKind.DISK, "erase a disk") if any(map(_DRIVE.match, lower)) else None
    deep = any(map(_DEEP.match, lower)) or any(len(word) > 1 and "-recurse".startswith(word) for word in lower)
    return (DangerKind.ROOT, _REMOVES) if deep and any(map(_is_root, _operands(step))) else None


def _risk_of(step: UnfoldedCommand) -> tuple[DangerKind, str] | None:
    """Return kind and text of the risk of one command; None without any."""
    name, words = step.name, step.words
    if step.fetched:
        return DangerKind.DOWNLOAD, _RUNS_DOWNLOAD
    if name in INTERPRETERS and step.upstream and runs_its_input(step):
        if any(up.name in DOWNLOADERS for up in step.upstream):
            return DangerKind.DOWNLOAD, _RUNS_DOWNLOAD
        if decodes_into(step):
            return DangerKind.DOWNLOAD, "run decoded text at once"
    if name in PROGRAMS:
        words = [unquoted(word) for word in words]
        kind, text = destroyed_by(name, words, unquoted(input_of(step) or "") if step.upstream or step.stdin else "")
        return (DangerKind(kind), text) if kind else None
    if name == "rm" and _recursive(step):
        if "--no-preserve-root" in words:
            return DangerKind.ABOVE, "remove even a root directory"
        if any(map(_ABOVE.match, _operands(step))):
            return DangerKind.ABOVE, "remove what lies above its directory"
    if not step.privileged or not (name in _DESTRUCTIVE or name.startswith("mkfs")):
        return None
    harmless = (
        (name in _ONLY_RECURSIVE and not _recursive(step))
        or (name == "find" and "-delete" not in words)
        or bool({"-l", "--list", "print", "of=/dev/null"}.intersection(words))
        or (name == "passwd" and bool({"-S", "--status"}.intersection(words)))
    )
    return None if harmless else (DangerKind.PRIVILEGED, "run a destructive command as somebody else")


def is_suspect(line: str, commands: Iterable[SimpleCommand]) -> bool:
    """Whether a command line is dangerous if its refusal says so: run as root, evaluated, or after credentials."""
    for command in commands:
        if command.privileged or command.name == "eval":
            return True
    return _near_credentials(line) and any(_CREDENTIALS.search(word) for one in commands for word in one.words[1:])


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

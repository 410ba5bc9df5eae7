"""Programs that run other commands: `ssh host …`, `watch …`, `docker run …`, `git -c alias.x=!…`, `python -c …`.

Of a program given on a command line no language is parsed: found are calls that run a command with the text that they
are given, and calls that delete. Text that a program prints or hands to functions of its own is none of them.

Read for safety alone: a call's key and class are those of the launcher.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class _LauncherSyntax(NamedTuple):
    """Syntax of a launcher: which of its words are its own, and where its command begins."""

    valued: frozenset[str] = frozenset()  # its options that take a value of their own
    operands: int = 0  # words of its own before the command
    joined: bool = False  # the words of the command are joined into a line for a shell


def _launcher(valued: str = "", operands: int = 0, *, joined: bool = False) -> _LauncherSyntax:
    return _LauncherSyntax(frozenset(valued.split()), operands, joined)


_LAUNCHERS = {
    "ssh": _launcher("-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w", 1, joined=True),
    "sshpass": _launcher("-p -f -d -P"),
    "watch": _launcher("-n --interval -q", joined=True),
    "parallel": _launcher("-j -N -n -L -S -a", joined=True),
    "tmux": _launcher("-s -n -c -t -x -y -F -e -L -S -f", 1, joined=True),
    "screen": _launcher("-S -dmS -c -h -s -t -T"),
    "strace": _launcher("-o -e -p -s -u -E -a -b -I -O -S -P -X"),
    "ltrace": _launcher("-o -e -p -s -u -a -n"),
    "flock": _launcher("-w -E --timeout", 1),
    "taskset": _launcher("", 1),
    "chrt": _launcher("-T -P -D", 1),
    "chroot": _launcher("", 1),
    "unshare": _launcher("-S -G -R -w"),
    "nsenter": _launcher("-t -S -G"),
    "runuser": _launcher("-u -g -G -s"),
    "systemd-run": _launcher("-p -u -M -E -H"),
    "caffeinate": _launcher("-t -w"),
    "xvfb-run": _launcher("-n -s -e -f -p -w"),
    "conda": _launcher("-n -p --name --prefix", 1),
    **dict.fromkeys(("npx", "bunx"), _launcher("-p --package")),
    **dict.fromkeys(("uv", "rye", "hatch", "pdm"), _launcher("-p --python --with --extra --group", 1)),
    **dict.fromkeys(("poetry", "pipenv", "bundle"), _launcher("", 1)),
    **dict.fromkeys(
        "coproc toybox arch setarch dbus-run-session fakeroot proot unbuffer chronic firejail valgrind".split(),
        _launcher(),
    ),
}
NAMES = frozenset(_LAUNCHERS) | {"docker", "podman", "script", "git"}  # Commands that may run others

# Subcommands that run a command; others run none
_SUBCOMMANDS = {
    **dict.fromkeys(("uv", "rye", "hatch", "pdm", "poetry", "pipenv", "conda"), frozenset({"run"})),
    "bundle": frozenset({"exec"}),
    "tmux": frozenset("new new-session neww new-window splitw split-window send send-keys run run-shell".split()),
}

_SCRIPTED = frozenset({"script", "flock", "runuser"})  # Launchers with `-c LINE`

_WHOLE = re.compile(r"(?:/|~|\$\{?HOME\}?|/(?:etc|usr|var|bin|boot|lib|root|dev|(?:home|Users)(?:/[^/]+)?))/?\Z")
_CONTAINER_VALUED = frozenset(
    """-v --volume --mount -e --env -w --workdir -u --user --name --network --entrypoint -p --publish --platform -h
    --hostname --env-file -l --label --memory -m --cpus --add-host""".split()
)


class LaunchedCommand(NamedTuple):
    """Command of a launcher: words, or a line for a shell; both empty if unknown."""

    words: list[str]
    line: str = ""


def launched(name: str, words: list[str]) -> LaunchedCommand:
    """Return the command that a launcher runs, of which `words` is the call."""
    if name in {"docker", "podman"}:
        return LaunchedCommand(_in_container(words))
    if name == "git":
        return LaunchedCommand([], _git_alias(words))
    if name in _SCRIPTED:
        for at, word in enumerate(words[1:-1], start=1):
            if word == "--command" or (word[:1] == "-" and word[:2] != "--" and word.endswith("c")):
                return LaunchedCommand([], words[at + 1])
    how = _LAUNCHERS.get(name)
    if how is None:
        return LaunchedCommand([])
    subcommands = _SUBCOMMANDS.get(name)
    if subcommands is not None and not subcommands.intersection(words[1:4]):
        return LaunchedCommand([])
    rest = _without_options(words[1:], how.valued)
    for _ in range(how.operands):
        rest = _without_options(rest[1:], how.valued)
    if name == "parallel" and ":::" in rest:
        at = rest.index(":::")
        rest = [*rest[:at], *rest[at + 1 : at + 2]]
    return LaunchedCommand([], " ".join(rest)) if how.joined else LaunchedCommand(rest)


def _without_options(words: list[str], valued: frozenset[str]) -> list[str]:
    """Return the words after options."""
    while words and words[0][:1] == "-":
        if words[0] == "--":
            return words[1:]
        words = words[2:] if words[0] in valued else words[1:]
    return words


def _in_container(words: list[str]) -> list[str]:
    """Return a container's command with paths of the host; empty if nothing vital is mounted."""
    if "run" not in words[1:3]:
        return []
    rest = words[words.index("run") + 1 :]
    mounts: list[tuple[str, str]] = []
    while rest and rest[0][:1] == "-":
        option, _, value = rest[0].partition("=")
        taken = 1
        if not value and (option in _CONTAINER_VALUED):
            value, taken = rest[1] if len(rest) > 1 else "", 2
        if option in {"-v", "--volume"} and value.count(":"):
            source, target = value.split(":")[:2]
            mounts.append((source, target))
        elif option == "--mount":
            fields = dict(field.partition("=")[::2] for field in value[:400].split(","))
            source = fields.get("source") or fields.get("src", "")
            mounts.append((source, fields.get("target") or fields.get("destination") or fields.get("dst", "")))
        rest = rest[taken:]
    vital = [(source, target) for source, target in mounts if target and _WHOLE.match(source)]
    return [_outside(word, vital) for word in rest[1:]] if vital else []


def _outside(word: str, mounts: list[tuple[str, str]]) -> str:
    """Return a word of a container's command with mounted paths as paths of the host."""
    for source, target in mounts:
        inside = target.rstrip("/")
        if inside:
            word = re.sub(rf"(?<![\w.-]){re.escape(inside)}(/|(?![\w.-]))", _root(source), word)
    return word


def _root(source: str) -> Callable[[re.Match[str]], str]:
    """Replaces a mount point by its directory on the host."""
    plain = source.rstrip("/")
    return lambda found: plain + found[1] if plain else "/"


def _git_alias(words: list[str]) -> str:
    """Return the shell line of an alias that a git call sets."""
    for at, word in enumerate(words):
        if word.startswith("alias."):
            _, _, inline = word.partition("=")
            line = inline or (words[at + 1] if at + 1 < len(words) else "")
            if line.startswith("!"):
                return line[1:]
    return ""


_RUNNERS = frozenset(
    "os subprocess sp commands pty asyncio child_process cp execa Kernel IO Open3 shelljs Deno".split()
)
_QUOTED = r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|`(?P<back>[^`]*)`)"""
_CALLS = re.compile(
    r"(?:(?P<on>[\w)\]]{1,40}+)\s{0,4}+\.\s{0,4}+)?\b(?P<name>system|popen|Popen|exec\w{0,20}|spawn\w{0,20}|run|call|check_call|check_output"
    r"|getoutput|getstatusoutput|create_subprocess_\w{1,20})\b"
    rf"\s{{0,8}}(?:\(\s{{0,80}}|(?=['\"]))(?:r?{_QUOTED}"
    r"(?P<more>\s*,\s*(?:\[[^\]]{0,400}\]|['\"][^'\"]*['\"]"
    r"(?:\s*,\s*['\"][^'\"]*['\"])*))?|\[(?P<words>[^\]]{0,400})\])"
)
# Names that run a command by themselves; others do so only if the program names their module
_ALWAYS = frozenset(
    {"system", "popen", "Popen", "exec", "execSync", "execFileSync", "spawn", "spawnSync", "check_output"}
)

_LISTED = re.compile(r"['\",\[\]]")
_HOME = (
    r"Path\.home\(\)|os\.environ\[['\"]HOME['\"]\]|process\.env\.HOME"
    r"|(?:require\(['\"](?:node:)?os['\"]\)\.|os\.)?homedir\(\)"
)
_TREES = re.compile(
    r"\b(?:rmtree|rmSync|rmdirSync|removeSync|rm_rf|rm_r|remove_entry_secure|rimraf)(?:\s*\(\s*|\s+(?=['\"]))"
    rf"(?:(?:[\w.]*\b(?:expanduser|Path|str)\(\s*)?{_QUOTED}"
    rf"|(?:[\w.]*\bstr\(\s*)?(?:\w+\.)?(?P<home>{_HOME}))"
)
_BACKTICKS = re.compile(r"(?<![\w(])`([^`]+)`")


def lines_in(program: str, *, backticks: bool = False) -> list[str]:
    """Return the command lines that a program runs. `backticks`: text in them is one, as in Perl, Ruby and PHP."""
    lines: list[str] = []
    foreign = "subprocess" in program or "child_process" in program
    for found in _CALLS.finditer(program):
        on, name = found["on"] or "", found["name"]
        if on and on[-1] not in ")]" and on not in _RUNNERS:
            continue  # somebody else's `run`
        if not on and name not in _ALWAYS and not foreign:
            continue
        text = _LISTED.sub(" ", found["words"]) if found["words"] is not None else _quoted(found)
        lines.append(text + _LISTED.sub(" ", found["more"] or ""))
    return lines + (_BACKTICKS.findall(program) if backticks else [])


def trees_in(program: str) -> list[str]:
    """Return the paths of trees that a program removes."""
    return ["~" if found["home"] is not None else _quoted(found) for found in _TREES.finditer(program)]


def _quoted(found: re.Match[str]) -> str:
    return found["double"] or found["single"] or found["back"] or ""

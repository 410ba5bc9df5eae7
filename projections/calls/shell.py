"""A shell-word lexer that finds the simple commands of a command line.

Enough of POSIX shell to answer "which commands does this run, and does it write a file?": quotes,
escapes, operators, redirections, here-documents' starts, subshells and `bash -c`. Not an interpreter: nothing is
expanded. Broken quoting ends the word at the end of the line, as a person would read it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

MAX_COMMAND_CHARS = 4000
"""Only this much of a command line is read: key, class and safety show at its start."""

_TOKEN = re.compile(
    r"""[ \t]+                                        # blanks
    | (?P<end>\n|;;?|&&|\|\|?&?|&(?!>))               # a command ends
    | (?P<group>[()])                                 # subshell: a command starts after either bracket
    | \#[^\n]*                                        # comment
    | (?P<redirect>\d*(?:&>>?|>>|>\||>&|<<<|<<-?|<>|<&|>|<))
    | (?P<word>(?:[^\s'"\\;&|<>()]+|\\.|'[^']*'?|"(?:[^"\\]|\\.)*"?|\\\n)+)
    | .""",
    re.VERBOSE | re.DOTALL,
)
_PIECE = re.compile(r"""'([^']*)'?|"((?:[^"\\]|\\.)*)"?|\\(.)|([^'"\\]+)""", re.DOTALL)
_ASSIGNMENT = re.compile(r"(?:[A-Za-z_]\w*(?:\[[^\]]*\])?\+?|\$env:\w+)=", re.IGNORECASE)
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=$")
_LOOP_HEADS = frozenset({"for", "case", "select", "function"})
_KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "{", "}", "!", "time"})
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_WRAPPERS: dict[str, frozenset[str]] = {
    # wrapper -> its options that take a value of their own
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U"}),
    "doas": frozenset({"-u", "-C"}),
    "env": frozenset({"-u", "-C", "-S"}),
    "time": frozenset({"-f", "-o"}),
    "nohup": frozenset(),
    "nice": frozenset({"-n"}),
    "ionice": frozenset({"-c", "-n", "-p"}),
    "timeout": frozenset({"-s", "-k", "--signal", "--kill-after"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "command": frozenset(),
    "exec": frozenset({"-a"}),
    "builtin": frozenset(),
    "xargs": frozenset({"-n", "-I", "-P", "-L", "-d", "-s", "-a", "-E"}),
}


class SimpleCommand(NamedTuple):
    """One simple command: its words unquoted, wrappers and assignments removed.

    Attributes:
        words: command word first; empty only for a bare assignment or redirection.
        writes: paths that its redirections write to.
        privileged: it ran under sudo or doas.
        piped: it reads from the command before it.
    """

    words: tuple[str, ...]
    writes: tuple[str, ...]
    privileged: bool
    piped: bool

    @property
    def name(self) -> str:
        """Command word without its directory (`/usr/bin/git` → `git`)."""
        return self.words[0].rsplit("/", 1)[-1] if self.words else ""


def _unquote(word: str) -> str:
    if "'" not in word and '"' not in word and "\\" not in word:
        return word
    return "".join(
        single or re.sub(r"\\(.)", r"\1", double, flags=re.DOTALL) or escaped or plain
        for single, double, escaped, plain in _PIECE.findall(word.replace("\\\n", ""))
    )


def _without_wrappers(words: list[str]) -> tuple[list[str], bool, str | None]:
    """Drop assignments, keywords and wrappers; the third value is the script of a `bash -c`."""
    privileged = False
    while words:
        first = words[0].rsplit("/", 1)[-1]
        if _ASSIGNMENT.match(words[0]) or (words[0] in _KEYWORDS and first != "time"):
            words = words[1:]
        elif first in _WRAPPERS:
            privileged = privileged or first in {"sudo", "doas"}
            valued, words = _WRAPPERS[first], words[1:]
            while words and words[0].startswith("-") and words[0] != "--":
                words = words[2:] if words[0] in valued else words[1:]
            if words and words[0] == "--":
                words = words[1:]
            if first == "timeout" and words:
                words = words[1:]
        elif first in _SHELLS and len(words) > 1:
            for position, word in enumerate(words[1:], start=1):
                if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
                    script = words[position + 1] if position + 1 < len(words) else ""
                    return words, privileged, script
                if not word.startswith("-"):
                    break
            return words, privileged, None
        else:
            break
    return words, privileged, None


def _after_array(text: str, position: int) -> int:
    """Where the commands go on after an array's values: `KEYS=(a b)`."""
    end = text.find(")", position)
    return end + 1 if end >= 0 else len(text)


def _after_here_document(text: str, position: int, delimiter: str) -> int:
    """Where the commands go on after a here-document's body; its lines are data, not commands."""
    while position < len(text):
        end = text.find("\n", position)
        line = text[position : end if end >= 0 else len(text)]
        position = end + 1 if end >= 0 else len(text)
        if line.strip("\t") == delimiter:
            break
    return position


@lru_cache(maxsize=4096)
def simple_commands(line: str, depth: int = 0) -> tuple[SimpleCommand, ...]:  # noqa: C901 - one scanner, one state
    """All simple commands of a command line, in order; `bash -c` scripts are opened up to three levels deep."""
    commands: list[SimpleCommand] = []
    words: list[str] = []
    writes: list[str] = []
    redirect = ""
    piped = False

    def finish() -> None:
        nonlocal words, writes, redirect
        if words or writes:
            plain, privileged, script = _without_wrappers([] if words and words[0] in _LOOP_HEADS else words)
            if script is not None and depth < 3:
                inner = simple_commands(script, depth + 1)
                commands.extend(c._replace(privileged=c.privileged or privileged) for c in inner)
                if writes:
                    commands.append(SimpleCommand((), tuple(writes), privileged, piped))
            elif plain or writes:
                commands.append(SimpleCommand(tuple(plain), tuple(writes), privileged, piped))
        words, writes, redirect = [], [], ""

    text, position, here = line[:MAX_COMMAND_CHARS], 0, ""
    while (token := _TOKEN.match(text, position)) is not None:
        kind, position = token.lastgroup, token.end()
        if kind == "word":
            word = _unquote(token.group())
            if not redirect:
                words.append(word)
            elif redirect.startswith("<<") and redirect != "<<<":
                here = word
            elif ">" in redirect and not redirect.endswith("&") and word != "/dev/null":
                writes.append(word)
            redirect = ""
        elif kind == "redirect":
            redirect = token.group()
        elif kind == "group" and token.group() == "(" and words and _ARRAY.match(words[-1]):
            position = _after_array(text, position)
        elif kind is not None:
            finish()
            piped = token.group().startswith("|") and token.group() != "||"
            if here and token.group() == "\n":
                position, here = _after_here_document(text, position, here), ""
    finish()
    return tuple(commands)


@lru_cache(maxsize=4096)
def command_word(line: str) -> str:
    """Command word that names what a command line does: the first that is not `cd`, an assignment or a wrapper."""
    fallback = ""
    for command in simple_commands(line):
        name = command.name
        if name and name not in {"cd", "pushd", "popd", "set", "export", "source", "."}:
            return name
        fallback = fallback or name
    return fallback

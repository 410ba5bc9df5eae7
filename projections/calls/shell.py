"""Shell lexer that finds the simple commands of a command line.

Enough of POSIX shell to answer "which commands does this run, and does it write a file?": quotes,
escapes, operators, redirections, here-documents' starts, subshells and `bash -c`. Not an interpreter: nothing is
expanded. Broken quoting ends the word at the end of the line, as a person would read it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# Number of characters of a command line that are read: key, class and safety show at its start
MAX_COMMAND_CHARS = 4000

_TOKEN = re.compile(
    r"""[ \t]*+(?:
      (?![0-9]++[<>])(?P<plain>[^\s'"\\;&|<>()\#][^\s'"\\;&|<>()]*+)(?!['"\\])   # a word that is as it stands
    | (?P<end>\n|;;?|&&|\|\|?&?|&(?!>))                                          # a command ends
    | (?P<bracket>[()])                                                         # subshell: either ends a command, too
    | \#[^\n]*                                                                  # comment
    | (?P<redirect>[0-9]*(?:&>>?|>>|>\||>&|<<<|<<-?|<>|<&|>|<))
    | (?P<quoted>(?:[^\s'"\\;&|<>()]++|\\.|'[^']*+'?|"(?:[^"\\]++|\\.)*+"?|\\\n)++)
    | .
    | (?<=[ \t])\Z)                                                              # blanks at the end
    """,
    re.VERBOSE | re.DOTALL,
)
_Token = tuple[str, str, str, str, str]  # Plain word, end, bracket, redirection, quoted word; one of them, or none
_PIECE = re.compile(r"""'([^']*)'?|"((?:[^"\\]++|\\.)*+)"?|\\(.)|([^'"\\]+)""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ASSIGNMENT = re.compile(r"(?:[A-Za-z_]\w*(?:\[[^\]]*\])?\+?|\$env:\w+)=", re.IGNORECASE)
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=$")
LOOP_HEADS = frozenset({"for", "case", "select", "function"})
_KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "{", "}", "!", "time"})
SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh", "ash", "fish", "mksh", "csh", "tcsh", "rbash"})
_OTHER_SHELLS = frozenset({"cmd", "cmd.exe", "powershell", "powershell.exe", "pwsh", "pwsh.exe", "su"})
PRIVILEGE_WRAPPERS = frozenset({"sudo", "doas", "pkexec", "run0", "gosu", "su-exec"})
_MAX_DEPTH = 3
_END: _Token = ("", "\n", "", "", "")
_WRAPPERS: dict[str, frozenset[str]] = {
    # wrapper -> its options that take a value of their own
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "-D", "-R", "-r", "-t", "-T", "-U", "--user", "--group", "-nu"}),
    "doas": frozenset({"-u", "-C"}),
    "pkexec": frozenset({"--user"}),
    "run0": frozenset({"-u"}),
    "gosu": frozenset(),
    "su-exec": frozenset(),
    "env": frozenset({"-u", "-C"}),
    "time": frozenset({"-f", "-o"}),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "busybox": frozenset(),
    "nice": frozenset({"-n"}),
    "ionice": frozenset({"-c", "-n", "-p"}),
    "timeout": frozenset({"-s", "-k", "--signal", "--kill-after"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "command": frozenset(),
    "exec": frozenset({"-a"}),
    "builtin": frozenset(),
    "xargs": frozenset({"-n", "-I", "-P", "-L", "-d", "-s", "-a", "-E"}),
}

_LOOKS_UP = (["-v"], ["-V"])  # Options by which `command` names a command instead of running it

# Wrappers with an operand (a time, a user) before the command
_WITH_OPERAND = frozenset({"timeout", "gosu", "su-exec"})

_VALUED_OF_SHELL = frozenset({"--rcfile", "--init-file"})  # Options of a shell that take a value, beside `-o` and `-O`

_SCRIPT_OPTIONS = frozenset({"/c", "/k", "-c", "-command", "--command"})

# Words that may precede the command word; every other first word is the command word
_SPECIAL = _KEYWORDS | SHELLS | _OTHER_SHELLS | _WRAPPERS.keys()


class SimpleCommand(NamedTuple):
    """Simple command: its words unquoted, without wrappers and assignments."""

    words: tuple[str, ...]  # command word first; empty only for a bare assignment or redirection
    writes: tuple[str, ...]  # paths that its redirections write to
    privileged: str  # the wrapper that it ran under as somebody else (`sudo`, `doas`); empty if none
    name: str = ""  # command word without its directory (`/usr/bin/git` → `git`)
    then: str = ""  # operator behind it (`|`, `&&`, `||`, `;`, a bracket); at the end of the line a line feed


def _unquote(word: str) -> str:
    mark = word[0]
    if mark == word[-1] and (mark == "'" or (mark == '"' and "\\" not in word)) and word.count(mark) == 2:
        return word[1:-1]  # quoted as a whole: the usual case
    return "".join(
        single or _ESCAPED.sub(r"\1", double) or escaped or plain
        for single, double, escaped, plain in _PIECE.findall(word.replace("\\\n", ""))
    )


def without_wrappers(words: list[str]) -> tuple[list[str], str, str | None]:
    """Remove assignments, keywords and wrappers.

    Returns:
        The words that are left, the wrapper that gives them privileges (empty if none), and the script of a `bash -c`.
    """
    privileged = ""
    while words:
        first = words[0].rpartition("/")[2]
        if first not in _SPECIAL and "=" not in words[0]:
            break
        if first == "command" and words[1:2] in _LOOKS_UP:
            break
        if _ASSIGNMENT.match(words[0]) or (words[0] in _KEYWORDS and first != "time"):
            words = words[1:]
        elif first in _WRAPPERS:
            if first in PRIVILEGE_WRAPPERS:
                privileged = privileged or first
            words = _unwrapped(first, words[1:])
        elif first in SHELLS and len(words) > 1:
            return words, privileged, _script_of_shell(words)
        elif first in _OTHER_SHELLS:
            return words, privileged or ("su" if first == "su" else ""), _script_of(words)
        else:
            break
    return words, privileged, None


def _unwrapped(wrapper: str, words: list[str]) -> list[str]:
    """Return the words after a wrapper's own options and operand."""
    valued = _WRAPPERS[wrapper]
    while words and words[0].startswith("-") and words[0] != "--":
        if wrapper == "env" and words[0].startswith(("-S", "--split-string")):
            return _split_string(words)
        words = words[2:] if words[0] in valued else words[1:]
    if words and words[0] == "--":
        words = words[1:]
    return words[1:] if wrapper in _WITH_OPERAND else words


def _split_string(words: list[str]) -> list[str]:
    """Return the words that `env -S 'A=b command -x'` runs."""
    first = words[0]
    if first in {"-S", "--split-string"}:
        return [*(words[1].split() if len(words) > 1 else ()), *words[2:]]
    given = first.partition("=")[2] if first.startswith("--") else first[2:]
    return [*given.split(), *words[1:]]


def _script_of_shell(words: list[str]) -> str | None:
    """Return the script of `bash -c …`; None if a shell runs a file or its input."""
    has_script = takes_value = False
    for word in words[1:]:
        if takes_value:
            takes_value = False
        elif word[:1] in {"-", "+"} and len(word) > 1:
            takes_value = word in _VALUED_OF_SHELL or (word[1] != "-" and word[-1] in "oO")
            has_script = has_script or (word[0] == "-" and word[1] != "-" and "c" in word)
        else:
            return word if has_script else None
    return "" if has_script else None


def _script_of(words: list[str]) -> str | None:
    """Script of `cmd /c …`, `powershell -Command …` or `su -c …`."""
    for position, word in enumerate(words[1:], start=1):
        if word.lower() in _SCRIPT_OPTIONS:
            rest = words[position + 1 :]
            return rest[0] if rest and words[0].endswith("su") else " ".join(rest)
    return None


def _tokens(text: str) -> Sequence[_Token]:
    """Return all tokens of a command line."""
    if "<<" in text or "=(" in text:
        return _tokens_without_data(text)
    return _TOKEN.findall(text)


def _tokens_without_data(text: str) -> list[_Token]:
    """Tokens of a line that may hold data, which are no commands: bodies of here-documents, values of arrays."""
    tokens: list[_Token] = []
    position, here, before = 0, "", ""
    while position < len(text) and (found := _TOKEN.match(text, position)) is not None:
        position = found.end()
        token: _Token = found.groups("")  # type: ignore[assignment]
        tokens.append(token)
        plain, end, bracket, redirect, quoted = token
        if (plain or quoted) and before.startswith("<<") and before != "<<<":
            here = plain or _unquote(quoted)
        elif bracket == "(" and _ARRAY.match(before):
            _, position = balanced(text, position)
        elif end == "\n" and here:
            position, here = _after_here_document(text, position, here), ""
        before = plain or quoted or redirect
    return tokens


def _after_here_document(text: str, position: int, delimiter: str) -> int:
    """Return the end of a here-document's body."""
    start = position
    while position < len(text):
        end = text.find("\n", position)
        line = text[position : end if end >= 0 else len(text)]
        position = end + 1 if end >= 0 else len(text)
        if line.strip("\t") == delimiter:
            return position
    return start if "((" in text[:start] else position  # a shift in arithmetic is no here-document


# A parenthesis, or text that holds none: it is quoted or escaped
_NESTING = re.compile(r"""[()]|'[^']*+'?|"(?:[^"\\]++|\\.)*+"?|\\.""", re.DOTALL)


def balanced(text: str, position: int) -> tuple[str, int]:
    """Return the text before the closing parenthesis, and the position after it."""
    depth, at = 1, position
    while (found := _NESTING.search(text, at)) is not None:
        at, mark = found.end(), text[found.start()]
        if mark == "(":
            depth += 1
        elif mark == ")":
            depth -= 1
            if not depth:
                return text[position : at - 1], at
    return text[position:], len(text)


def simple_commands(line: str, depth: int = 0) -> list[SimpleCommand]:
    """Return all simple commands of a command line, in order; `bash -c` scripts are opened up to three levels deep."""
    commands: list[SimpleCommand] = []
    words: list[str] = []
    writes: list[str] = []
    redirect = ""
    for plain, end, bracket, redirection, quoted in (*_tokens(line[:MAX_COMMAND_CHARS]), _END):
        if plain or quoted:
            word = plain or _unquote(quoted)
            if not redirect:
                words.append(word)
            elif ">" in redirect and not redirect.endswith("&") and word != "/dev/null":
                writes.append(word)
            redirect = ""
        elif redirection:
            redirect = redirection
        elif end or bracket:
            if words or writes:
                commands += _command(words, writes, depth, end or bracket)
                words, writes = [], []
            elif end and commands and commands[-1].then == ")":
                commands[-1] = commands[-1]._replace(then=end)
            redirect = ""
    return commands


def _command(words: list[str], writes: list[str], depth: int, then: str) -> list[SimpleCommand]:
    """Return the simple command of some words, or those of the script that they run."""
    plain, privileged, script = without_wrappers([] if words and words[0] in LOOP_HEADS else words)
    if script is not None and depth < _MAX_DEPTH:
        inner = [c._replace(privileged=c.privileged or privileged) for c in simple_commands(script, depth + 1)]
        if inner:
            inner[-1] = inner[-1]._replace(then=then)
        return [*inner, SimpleCommand((), tuple(writes), privileged)] if writes else inner
    if not plain and not writes:
        return []
    name = plain[0].rpartition("/")[2] if plain else ""
    return [SimpleCommand(tuple(plain), tuple(writes), privileged, name, then)]

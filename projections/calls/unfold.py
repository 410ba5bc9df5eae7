"""Every simple command that a script would run, however it hides it: a slow and careful reader.

`shell` reads each command line quickly; this one reads the few lines that might do harm. Known here are variables and
directories as the line itself sets them, command and process substitution, `eval`, `sh -c`, `xargs`, `find -exec`,
here-documents and text piped into a shell, and programs given on the line (`python -c "os.system('…')"`). Nothing is
run, and what a line does not say stays unknown.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from dataclasses import dataclass, field

from .shell import LOOP_HEADS, MAX_COMMAND_CHARS, SHELLS, without_wrappers

MAX_DEPTH = 5
MAX_COMMANDS = 256

DOWNLOAD = "\ue000"
"""Stands in a word for what a download gave."""

UNKNOWN = "\ue001"
"""Stands in a word for what a command gave, where the line does not say what that is."""

DOWNLOADERS = frozenset({"curl", "wget", "fetch", "aria2c", "lwp-download"})

_QUOTED = str.maketrans({"$": "\ue002", "*": "\ue003", "~": "\ue004", "`": "\ue005", "?": "\ue006"})
"""Characters that mean nothing special where they are quoted."""

_UNQUOTED = {0xE002: "$", 0xE003: "*", 0xE004: "~", 0xE005: "`", 0xE006: "?"}
_PROGRAMS = {
    # interpreter -> options that give it its program on the line; without one, and without a file, it reads its input
    **dict.fromkeys(SHELLS, ("-c",)),
    **dict.fromkeys(("python", "python2", "python3", "pypy3"), ("-c", "-m")),
    "perl": ("-e", "-E", "-n", "-p"),
    "ruby": ("-e", "-n", "-p"),
    "node": ("-e", "-p", "--eval", "--print"),
    "php": ("-r",),
}
INTERPRETERS = frozenset(_PROGRAMS)
RUNNERS = INTERPRETERS | {"eval", "source", ".", "trap", "ssh", "awk", "gawk"}
"""Commands whose arguments or input may hold further commands."""

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)\Z", re.DOTALL)
_DRIVE = re.compile(r"[A-Za-z]:")
_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "\n", "&", "(", ")")
_SPECIAL = re.compile(r"[ \t\r\n;|&<>()'\"\\$`]")
_SPECIAL_IN_QUOTES = re.compile(r'["\\$`]')
"""Where what stands for itself ends, in a word and within double quotes."""

_REDIRECTION = re.compile(r"\d*(?:&>>?|<<<|<<-?|>>|>\||>&|<>|<&|>|<)|&>>?")
_BACKTICKS = re.compile(r"`([^`]*)`")
_CALLS = re.compile(
    r"(?:system|popen|exec\w*|spawn\w*|run|call|check_call|check_output|getoutput|Popen)\s*\(\s*"
    r"(?:r?(['\"])(?P<text>.*?)\1|\[(?P<words>[^\]]*)\])",
    re.DOTALL,
)
_LISTED = re.compile(r"['\",]")
_TREES = re.compile(r"(?:rmtree|rmSync|rm_rf|rm_r|rimraf)\s*\(\s*(['\"])(.*?)\1", re.DOTALL)
_DECODERS = frozenset({"base64", "base32", "openssl", "xxd", "uudecode"})
_DECODES = frozenset({"-d", "-D", "--decode", "-di", "-id"})
_NARROWING = frozenset(
    """-name -iname -path -ipath -wholename -regex -iregex -mtime -mmin -atime -amin -ctime -cmin -newer -size -empty
    -user -group -perm -maxdepth -inum -links -samefile -lname""".split()
)
"""Tests of `find` that leave most files out."""


@dataclass(slots=True)
class Step:
    """One simple command.

    Attributes:
        words: command word first, without wrappers and assignments, variables filled in.
        writes: paths that redirections write to.
        privileged: the wrapper that makes it run as somebody else, if any.
        name: command word without its directory.
        upstream: commands whose output it reads, the nearest first.
        stdin: text that it reads, where the line gives it.
        directory: where it runs, as far as the line says; empty if it does not.
        fetched: a download stands where its command word or program should.
    """

    words: list[str]
    writes: list[str] = field(default_factory=list)
    privileged: str = ""
    name: str = ""
    upstream: list[Step] = field(default_factory=list)
    stdin: str | None = None
    directory: str = ""
    fetched: bool = False


def steps_of(script: str) -> list[Step]:
    """All commands that a script runs, in order."""
    reader = _Reader({})
    reader.read(script[:MAX_COMMAND_CHARS], 0)
    return reader.steps


def runs_its_input(step: Step) -> bool:
    """Whether a command runs what it reads from its input as a program."""
    options = _PROGRAMS.get(step.name)
    if options is None:
        return False
    shell = step.name in SHELLS
    for word in step.words[1:]:
        if word in {"-", "/dev/stdin"}:
            return True
        if not word.startswith("-"):
            return False
        if shell and not word.startswith("--"):
            if "c" in word or "s" in word:
                return "c" not in word
        elif word.startswith(options):
            return False
    return True


def decodes_into(step: Step) -> bool:
    """Whether what a command reads comes out of a decoder."""
    return any(up.name in _DECODERS and len(up.words) > 1 for up in step.upstream)


def _literal_output(step: Step) -> str | None:
    """What a command prints, where its words say it."""
    name, words = step.name, step.words[1:]
    if name == "echo":
        while words and words[0][:1] == "-" and not set(words[0][1:]) - set("neE"):
            words = words[1:]
        return " ".join(words)
    if name == "printf" and words:
        return " ".join(words[1:]) if "%" in words[0] else _ansi(words[0])
    if name == "cat" and not words:
        return step.stdin
    if name in _DECODERS and _DECODES.intersection(words) and (text := _input_of(step)) is not None:
        try:
            return base64.b64decode(text.strip() + "==").decode(errors="replace")
        except (binascii.Error, ValueError):
            return None
    return None


def _input_of(step: Step) -> str | None:
    """What a command reads, where the line says it."""
    if step.stdin is not None:
        return step.stdin
    return _literal_output(step.upstream[0]) if step.upstream else None


@dataclass(slots=True)
class _Draft:
    """A simple command as far as it has been read."""

    words: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    upstream: list[Step] = field(default_factory=list)
    stdin: str | None = None


@dataclass(slots=True)
class _Place:
    """How far a script has been read: its text, the command being read, the ones before it, groups that are open."""

    text: str
    position: int = 0
    draft: _Draft = field(default_factory=_Draft)
    last: list[Step] = field(default_factory=list)
    outer: list[tuple[str, int]] = field(default_factory=list)
    here: list[tuple[str, bool]] = field(default_factory=list)


class _Reader:
    """Reads scripts, keeping the variables and the directory that they set."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables
        self.directory = ""
        self.steps: list[Step] = []

    def read(self, text: str, depth: int) -> None:
        """Read a script."""
        if depth > MAX_DEPTH or len(self.steps) > MAX_COMMANDS:
            return
        at = _Place(text)
        while at.position < len(at.text):
            character = at.text[at.position]
            if character in " \t\r":
                at.position += 1
            elif at.text.startswith("\\\n", at.position):
                at.position += 2
            elif character == "#":
                end = at.text.find("\n", at.position)
                at.position = end if end >= 0 else len(at.text)
            elif (character in "<>&" or character.isdecimal()) and (
                redirection := _REDIRECTION.match(at.text, at.position)
            ) is not None:
                at.position = redirection.end()
                self._redirect(at, redirection.group().lstrip("0123456789"), depth)
            elif character in ";&|\n()":
                operator = next(each for each in _OPERATORS if at.text.startswith(each, at.position))
                at.position += len(operator)
                self._operate(at, operator, depth)
            elif character in "{}" and _alone(at.text, at.position):
                at.position += 1
                self._operate(at, "(" if character == "{" else "}", depth)
            else:
                word, quoted, at.position = self._word(at.text, at.position, depth)
                if quoted or " " not in word or _ASSIGNMENT.match(word):
                    at.draft.words.append(word)
                else:
                    at.draft.words += word.split()  # a variable that held several words
        self._end(at, depth)

    def _end(self, at: _Place, depth: int) -> None:
        """Note the command that was being read, if any."""
        if at.draft.words or at.draft.writes:
            at.last = self._command(at.draft, depth)

    def _operate(self, at: _Place, operator: str, depth: int) -> None:
        """A command ends, or a group begins or ends."""
        piped = operator in {"|", "|&"}
        if at.here and (piped or operator == "\n"):
            self._take_bodies(at, depth, at.position - (operator == "\n"))
        self._end(at, depth)
        if operator == "(":
            at.outer.append((self.directory, len(self.steps)))
        elif operator in {")", "}"} and at.outer:
            directory, begun = at.outer.pop()
            self.directory = directory if operator == ")" else self.directory
            at.last = self.steps[begun:]
        upstream = at.draft.upstream if piped or operator in {"(", ")", "}"} else []
        at.draft = _Draft(upstream=[*reversed(at.last), *upstream] if piped else upstream)
        if operator not in {"(", ")", "}"}:
            at.last = []

    def _redirect(self, at: _Place, kind: str, depth: int) -> None:
        """Read a redirection or a process substitution."""
        text, draft = at.text, at.draft
        if kind in {"<", ">"} and text.startswith("(", at.position):
            body, at.position = _balanced(text, at.position + 1)
            inner = self._inner(body, depth)
            if len(inner) == 1 and draft.stdin is None:
                draft.stdin = _literal_output(inner[0])
            draft.words.append(f"/dev/fd/{DOWNLOAD if _downloads(inner) else UNKNOWN}")
            return
        while text[at.position : at.position + 1] in {" ", "\t"}:
            at.position += 1
        if text.startswith(("<(", ">("), at.position):  # `bash < <(curl …)`
            body, at.position = _balanced(text, at.position + 2)
            draft.upstream = [*reversed(self._inner(body, depth))]
            return
        word, quoted, at.position = self._word(text, at.position, depth)
        if kind == "<<<":
            draft.stdin = word
        elif kind.startswith("<<"):
            at.here.append((word, quoted))
        elif ">" in kind and not kind.endswith("&") and word != "/dev/null":
            draft.writes.append(self._path(word))

    def _take_bodies(self, at: _Place, depth: int, position: int) -> None:
        """Take the bodies of here-documents out of a text: what the command reads; substitutions in them do run."""
        waiting, at.here = at.here, []
        start = at.text.find("\n", position)
        if start < 0:
            return
        after = start + 1
        for delimiter, quoted in waiting:
            body, after = _here_document(at.text, after, delimiter)
            at.draft.stdin = body
            if not quoted:
                self._substitutions(body, depth)
        at.text = at.text[: start + 1] + at.text[after:]

    def _inner(self, body: str, depth: int) -> list[Step]:
        """The commands of a substitution, which count as run here."""
        inner = _Reader(dict(self.variables))
        inner.directory = self.directory
        inner.read(body, depth + 1)
        self.steps += inner.steps
        return inner.steps

    def _substitute(self, body: str, depth: int) -> str:
        """What stands in the place of a command substitution."""
        inner = self._inner(body, depth)
        if _downloads(inner):
            return DOWNLOAD
        literal = _literal_output(inner[-1]) if inner else None
        return literal if literal is not None else UNKNOWN

    def _substitutions(self, text: str, depth: int) -> None:
        """Command substitutions in the body of a here-document."""
        position = text.find("$(")
        while position >= 0:
            body, position = _balanced(text, position + 2)
            self._inner(body, depth)
            position = text.find("$(", position)
        for body in _BACKTICKS.findall(text):
            self._inner(body, depth)

    def _word(self, text: str, position: int, depth: int) -> tuple[str, bool, int]:
        """One word, whether any of it was quoted, and where the text goes on."""
        parts: list[str] = []
        quoted, start = False, position
        while position < len(text):
            character = text[position]
            if character in " \t\r\n;|&<>()":
                break
            if character == "'" or text.startswith("$'", position):
                begin = position + (1 if character == "'" else 2)
                close = text.find("'", begin)
                close = close if close >= 0 else len(text)
                inner = text[begin:close] if character == "'" else _ansi(text[begin:close])
                parts.append(inner.translate(_QUOTED))
                quoted, position = True, close + 1
            elif character == '"':
                inner, position = self._double_quoted(text, position + 1, depth)
                parts.append(inner)
                quoted = True
            elif character == "\\":
                parts.append(text[position + 1 : position + 2].translate(_QUOTED).replace("\n", ""))
                quoted, position = True, position + 2
            elif character in "$`":
                inner, position = self._expansion(text, position, depth)
                parts.append(inner)
            else:
                end = _end_of_plain(_SPECIAL, text, position)
                parts.append(text[position:end])
                position = end
        return "".join(parts), quoted, max(position, start + 1)

    def _double_quoted(self, text: str, position: int, depth: int) -> tuple[str, int]:
        parts: list[str] = []
        while position < len(text):
            character = text[position]
            if character == '"':
                return "".join(parts), position + 1
            if character == "\\":
                following = text[position + 1 : position + 2]
                special = following in {"$", "`", '"', "\\"}
                parts.append(following.translate(_QUOTED) if special else "" if following == "\n" else "\\" + following)
                position += 2
            elif character in "$`":
                inner, position = self._expansion(text, position, depth)
                parts.append(inner)
            else:
                end = _end_of_plain(_SPECIAL_IN_QUOTES, text, position)
                parts.append(text[position:end].translate(_QUOTED))
                position = end
        return "".join(parts), position

    def _expansion(self, text: str, position: int, depth: int) -> tuple[str, int]:
        """A variable or a command substitution, filled in where the line says with what."""
        if text[position] == "`":
            close = text.find("`", position + 1)
            close = close if close >= 0 else len(text)
            return self._substitute(text[position + 1 : close], depth), close + 1
        if text.startswith("$((", position):
            close = text.find("))", position)
            return "0", close + 2 if close >= 0 else len(text)
        if text.startswith("$(", position):
            body, position = _balanced(text, position + 2)
            return self._substitute(body, depth), position
        if text.startswith("${", position):
            close = text.find("}", position)
            close = close if close >= 0 else len(text)
            inside = text[position + 2 : close]
            name = found.group() if (found := _NAME.match(inside)) else ""
            return self._value(name, inside[len(name) :]), close + 1
        found = _NAME.match(text, position + 1)
        if found is None:
            return "$", position + 1
        return self._value(found.group(), ""), found.end()

    def _value(self, name: str, operation: str) -> str:
        if name == "IFS":
            return " "
        if name == "PWD" and self.directory:
            return self.directory
        known = self.variables.get(name)
        if not known and operation[:2] in {":-", ":="}:
            return operation[2:]
        return known if known is not None else f"${{{name}}}" if name else UNKNOWN

    def _path(self, word: str) -> str:
        """A path as the directory completes it."""
        if not self.directory or not word or word[0] in "/~$-" or word[0] == UNKNOWN or _DRIVE.match(word):
            return word
        return posixpath.join(self.directory, word)

    def _command(self, draft: _Draft, depth: int) -> list[Step]:
        """Note a command, and the commands that it runs in turn."""
        words = draft.words
        if words and words[0] in LOOP_HEADS:
            if words[0] == "for" and len(words) > 3:
                self.variables[words[1]] = words[3]  # the first value stands for all
            return []
        self._assign(words)
        plain, privileged, script = without_wrappers(list(words))
        name = plain[0].rpartition("/")[2] if plain else ""
        first = len(self.steps)
        step = Step(plain, draft.writes, privileged, name, list(draft.upstream), draft.stdin, self.directory)
        self.steps.append(step)
        step.fetched = bool(plain) and DOWNLOAD in plain[0]
        if script is None and name == "eval":
            script = " ".join(plain[1:])
        if script is not None:
            step.fetched = step.fetched or script.strip().startswith(DOWNLOAD)
            self._run(script, privileged, depth)
        elif name in {"trap", "ssh"} and len(plain) > 2:
            self._run(plain[1] if name == "trap" else " ".join(plain[2:]), privileged, depth)
        elif name in {"source", "."}:
            step.fetched = any(DOWNLOAD in word for word in plain[1:])
        elif name in {"cd", "pushd"}:
            self._enter(plain[1] if len(plain) > 1 else "~")
        elif name == "find":
            self._found(step, depth)
        elif name in RUNNERS:
            self._program(step, depth)
        if step.upstream and any(word.rpartition("/")[2] in {"xargs", "parallel"} for word in words[:8]):
            _take_arguments(step)
        return self.steps[first:]

    def _assign(self, words: list[str]) -> None:
        for word in words:
            assigned = _ASSIGNMENT.match(word)
            if assigned is not None:
                before = self.variables.get(assigned.group(1), "") if assigned.group(2) else ""
                self.variables[assigned.group(1)] = before + assigned.group(3)
            elif word not in {"export", "local", "declare", "readonly"}:
                break

    def _enter(self, directory: str) -> None:
        known = self.directory or directory[:1] in {"/", "~", "$"}
        self.directory = self._path(directory) if known else ""

    def _run(self, script: str, privileged: str, depth: int) -> None:
        """Read a script within this one; what it runs has the privileges of its caller."""
        first = len(self.steps)
        self.read(script.translate(_UNQUOTED), depth + 1)
        for step in self.steps[first:]:
            step.privileged = step.privileged or privileged

    def _program(self, step: Step, depth: int) -> None:
        """Text piped into an interpreter, and commands in a program given on the line."""
        from_file = len(step.words) > 1 and step.words[1].startswith("/dev/fd/")
        step.fetched = step.fetched or (from_file and DOWNLOAD in step.words[1])
        if from_file or runs_its_input(step):
            text = _input_of(step)
            if text is not None:
                step.fetched = step.fetched or text.strip().startswith(DOWNLOAD)
                if step.name in SHELLS:
                    self._run(text, step.privileged, depth)
                else:
                    self._calls_in(text.translate(_UNQUOTED), step, depth)
        elif step.name not in SHELLS:
            for word in step.words[1:]:
                self._calls_in(word.translate(_UNQUOTED), step, depth)

    def _calls_in(self, program: str, caller: Step, depth: int) -> None:
        """Commands that a program in another language calls."""
        for found in _CALLS.finditer(program):
            script = found["text"] if found["text"] is not None else _LISTED.sub(" ", found["words"])
            self._run(script, caller.privileged, depth)
        for _, tree in _TREES.findall(program):
            self._note(["rm", "-rf", tree], caller)

    def _found(self, step: Step, depth: int) -> None:
        """What `find` does to what it finds, as a command on the directories that it starts from."""
        words = step.words
        starts = _starts(words)
        if _is_narrowed(words):
            return
        if "-delete" in words:
            self._note(["rm", "-r", *starts], step)
        for at, word in enumerate(words):
            if word in {"-exec", "-execdir", "-ok", "-okdir"}:
                run = [each for each in words[at + 1 :] if each not in {";", "+"}]
                filled = [each for word in run for each in (starts if word == "{}" else [word])]
                if filled and filled[0].rpartition("/")[2] in {"rm", "unlink"}:
                    filled.insert(1, "-r")
                self._command(_Draft(filled), depth + 1)

    def _note(self, words: list[str], caller: Step) -> None:
        self.steps.append(Step(words, [], caller.privileged, words[0], directory=caller.directory))


def _downloads(steps: list[Step]) -> bool:
    return any(step.name in DOWNLOADERS for step in steps)


def _starts(words: list[str]) -> list[str]:
    """Directories that a `find` starts from."""
    starts: list[str] = []
    for word in words[1:]:
        if word[:1] in {"(", "!"} or (word.startswith("-") and word not in {"-L", "-H", "-P"}):
            break
        starts += [] if word.startswith("-") else [word]
    return starts


def _is_narrowed(words: list[str]) -> bool:
    """Whether a `find` leaves most of what it sees out."""
    return any(
        word in _NARROWING and words[at + 1 : at + 2] not in (["*"], ["\ue003"]) for at, word in enumerate(words)
    )


def _take_arguments(step: Step) -> None:
    """Give a command that `xargs` runs the arguments that come through the pipe, where the line says which."""
    source = step.upstream[0]
    given = _literal_output(source)
    if given is not None:
        step.words += given.split()
    elif source.name == "ls":
        step.words += [word for word in source.words[1:] if not word.startswith("-")]
    elif source.name == "find" and not _is_narrowed(source.words):
        step.words += (["-r"] if step.name == "rm" else []) + _starts(source.words)


def _end_of_plain(special: re.Pattern[str], text: str, position: int) -> int:
    """Where the first special character behind a place stands, or the text ends."""
    found = special.search(text, position)
    return found.start() if found else len(text)


def _alone(text: str, position: int) -> bool:
    """Whether a brace is a word of its own."""
    before, after = text[position - 1 : position] if position else " ", text[position + 1 : position + 2]
    return before in " \t\n;|&()" and (not after or after in " \t\n;|&()")


def _balanced(text: str, position: int) -> tuple[str, int]:
    """What stands before the closing parenthesis, and where the text goes on after it."""
    depth, at, quote = 1, position, ""
    while at < len(text):
        character = text[at]
        if character == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
            if not depth:
                return text[position:at], at + 1
        at += 1
    return text[position:], len(text)


def _here_document(text: str, position: int, delimiter: str) -> tuple[str, int]:
    """The body of a here-document, and where the commands go on."""
    start = position
    while position < len(text):
        close = text.find("\n", position)
        line = text[position : close if close >= 0 else len(text)]
        following = close + 1 if close >= 0 else len(text)
        if line.strip("\t") == delimiter:
            return text[start:position], following
        position = following
    return text[start:], len(text)


def _ansi(text: str) -> str:
    r"""Text of `$'…'`: `\x72` is a letter."""
    try:
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError:
        return text

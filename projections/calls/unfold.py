"""Expands a script to every simple command that it would run, including obfuscated ones; slow and thorough.

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
from collections.abc import Callable
from dataclasses import dataclass, field

from .launchers import NAMES as LAUNCHERS
from .launchers import launched, lines_in, trees_in
from .shell import LOOP_HEADS, SHELLS, balanced, without_wrappers

MAX_SCRIPT_CHARS = 65_536  # Number of characters of a line that are read for danger, a quarter of them at its end

# Only this much of a variable's value is filled in: values that are made of one another grow without end
MAX_VALUE_CHARS = 4_096

MAX_DEPTH = 5
MAX_COMMANDS = 256

DOWNLOAD = "\ue000"  # Placeholder in a word for the output of a download
UNKNOWN = "\ue001"  # Placeholder in a word for the unknown output of a command

DOWNLOADERS = frozenset({"curl", "wget", "fetch", "aria2c", "lwp-download", "lynx", "http", "https", "xh"})

# Characters without special meaning where they are quoted
_QUOTED = str.maketrans({"$": "\ue002", "*": "\ue003", "~": "\ue004", "`": "\ue005", "?": "\ue006"})

_UNQUOTED = {0xE002: "$", 0xE003: "*", 0xE004: "~", 0xE005: "`", 0xE006: "?"}
_PROGRAMS = {
    # interpreter -> options that give it its program on the line; without one, and without a file, it reads its input
    **dict.fromkeys(SHELLS, ("-c",)),
    "python": ("-c", "-m"),
    "pypy": ("-c", "-m"),
    "perl": ("-e", "-E", "-n", "-p"),
    "ruby": ("-e", "-n", "-p"),
    **dict.fromkeys(("node", "ts-node", "tsx"), ("-e", "-p", "--eval", "--print")),
    "bun": ("-e", "--eval"),
    "deno": ("eval",),
    "lua": ("-e",),
    "php": ("-r",),
}
INTERPRETERS = frozenset(_PROGRAMS)
# Commands whose arguments or input may contain further commands
RUNNERS = (
    INTERPRETERS
    | (LAUNCHERS - {"git"})
    | {"eval", "source", ".", "trap", "awk", "gawk", "mawk", "nawk", "alias", "powershell", "pwsh", "at", "crontab"}
)

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)\Z", re.DOTALL)
_DRIVE = re.compile(r"[A-Za-z]:")
_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "\n", "&", "(", ")")
_BREAKS = frozenset(" \t\r\n;|&<>()")  # Characters that end a word

_SPECIAL = re.compile(r"[ \t\r\n;|&<>()'\"\\$`]")
# Characters that end a run of plain text, in a word and within double quotes
_SPECIAL_IN_QUOTES = re.compile(r'["\\$`]')

_REDIRECTION = re.compile(r"\d*(?:&>>?|<<<|<<-?|>>|>\||>&|<>|<&|>|<)|&>>?")
_BACKTICKS = re.compile(r"`([^`]*)`")
_DECODERS = frozenset({"base64", "base32", "openssl", "xxd", "uudecode", "rev"})
_BACKTICKED = frozenset({"perl", "ruby", "php"})
_WHICH = re.compile(r"\s*(?:which|command -v|type -[pP])\s+([\w./-]+)\s*\Z")
_MAX_FILLED = 200
_SCHEDULE = re.compile(r"^[ \t]{0,8}(?:@\w{1,20}|(?:[\d*/,-]{1,40}[ \t]{1,8}){5})", re.MULTILINE)
_FORMAT = re.compile(r"%[sbq]")
_DECODES = frozenset({"-d", "-D", "--decode", "-di", "-id"})
_LISTERS = frozenset({"gci", "get-childitem", "ls", "dir"})
# Tests of `find` that leave most files out
_NARROWING = frozenset(
    """-name -iname -path -ipath -wholename -regex -iregex -mtime -mmin -atime -amin -ctime -cmin -newer -size -empty
    -user -group -perm -maxdepth -inum -links -samefile -lname""".split()
)


@dataclass(slots=True)
class UnfoldedCommand:
    """Simple command."""

    words: list[str]  # command word first, without wrappers and assignments, variables filled in
    writes: list[str] = field(default_factory=list)  # paths that redirections write to
    privileged: str = ""  # the wrapper that makes it run as somebody else, if any
    name: str = ""  # command word without its directory
    upstream: list[UnfoldedCommand] = field(default_factory=list)  # commands whose output it reads, the nearest first
    stdin: str | None = None  # text that it reads, where the line gives it
    directory: str = ""  # where it runs, as far as the line says; empty if it does not
    fetched: bool = False  # a download stands where its command word or program should


def steps_of(script: str) -> list[UnfoldedCommand]:
    """Return all commands that a script runs, in order."""
    reader = _ScriptReader({})
    reader.read(without_middle(script), 0)
    return reader.steps


def steps_of_program(program: str) -> list[UnfoldedCommand]:
    """Return all commands that a program in another language runs, in order."""
    reader = _ScriptReader({})
    reader.run_program(without_middle(program))
    return reader.steps


def unquoted(word: str) -> str:
    """Return a word of a step with its quoted characters as they stand on the line."""
    return word.translate(_UNQUOTED)


def interpreter(name: str) -> str:
    """Return an interpreter's name without version (`python3.12` → `python`); any other name unchanged."""
    plain = name.rstrip("0123456789.")
    return plain if plain in INTERPRETERS else name


def runs_its_input(step: UnfoldedCommand) -> bool:
    """Whether a command runs its input as a program."""
    options = _PROGRAMS.get(step.name)
    if options is None:
        return False
    shell = step.name in SHELLS
    for word in step.words[1:]:
        if word in {"-", "/dev/stdin"}:
            return True
        if shell and word == "-n":
            return False  # reads it, and runs nothing
        if not word.startswith("-"):
            return False
        if shell and not word.startswith("--"):
            if "c" in word or "s" in word:
                return "c" not in word
        elif word.startswith(options):
            return False
    return True


def decodes_into(step: UnfoldedCommand) -> bool:
    """Whether a command's input is the output of a decoder."""
    return any(up.name in _DECODERS and (len(up.words) > 1 or up.name == "rev") for up in step.upstream)


def _literal_output(step: UnfoldedCommand) -> str | None:
    """Return the output of a command, if its words determine it."""
    name, words = step.name, step.words[1:]
    if name == "echo":
        escapes = False
        while words and words[0][:1] == "-" and not set(words[0][1:]) - set("neE"):
            escapes = escapes or "e" in words[0]
            words = words[1:]
        return _ansi(" ".join(words)) if escapes else " ".join(words)
    if name == "printf" and words:
        given = iter(words[1:])
        filled = _FORMAT.sub(lambda _: next(given, ""), _ansi(words[0]))
        return " ".join([filled, *given])
    if name == "cat" and not words:
        return step.stdin
    if name in _DECODERS and _DECODES.intersection(words) and (text := input_of(step)) is not None:
        try:
            return base64.b64decode(text.strip() + "==").decode(errors="replace")
        except (binascii.Error, ValueError):
            return None
    return None


def without_middle(line: str) -> str:
    """Return a line, of a very long one its start and end: between them is text, and its use stands at the end."""
    end = MAX_SCRIPT_CHARS // 4
    return line if len(line) <= MAX_SCRIPT_CHARS else line[: MAX_SCRIPT_CHARS - end] + line[-end:]


def input_of(step: UnfoldedCommand) -> str | None:
    """Return the input of a command, if the line determines it."""
    if step.stdin is not None:
        return step.stdin
    return _literal_output(step.upstream[0]) if step.upstream else None


@dataclass(slots=True)
class _CommandDraft:
    """Partially parsed simple command."""

    words: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    upstream: list[UnfoldedCommand] = field(default_factory=list)
    stdin: str | None = None


@dataclass(slots=True)
class _ScriptPosition:
    """Reading position in a script: its text, the command being read, the ones before it, groups that are open."""

    text: str
    position: int = 0
    draft: _CommandDraft = field(default_factory=_CommandDraft)
    last: list[UnfoldedCommand] = field(default_factory=list)
    outer: list[tuple[str, int]] = field(default_factory=list)
    here: list[tuple[str, bool]] = field(default_factory=list)


class _ScriptReader:
    """Parses scripts, tracking the variables and the directory that they set."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables
        self.directory = ""
        self.steps: list[UnfoldedCommand] = []
        self.aliases: dict[str, str] = {}
        self.files: dict[str, str] = {}

    def read(self, text: str, depth: int) -> None:
        """Parse a script."""
        if depth > MAX_DEPTH or len(self.steps) > MAX_COMMANDS:
            return
        at = _ScriptPosition(text)
        while at.position < len(at.text):
            character = at.text[at.position]
            if character in " \t\r":
                at.position += 1
            elif character == "\\" and at.text.startswith("\n", at.position + 1):
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

    def _end(self, at: _ScriptPosition, depth: int) -> None:
        """Add the command being parsed, if any."""
        if at.draft.words or at.draft.writes:
            at.last = self._command(at.draft, depth)

    def _operate(self, at: _ScriptPosition, operator: str, depth: int) -> None:
        """Handle the end of a command, or the start or end of a group."""
        if operator == "\n" and at.draft.upstream and not at.draft.words and not at.here:
            return  # a pipe goes on in the next line
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
        at.draft = _CommandDraft(upstream=[*reversed(at.last), *upstream] if piped else upstream)
        if operator not in {"(", ")", "}"}:
            at.last = []

    def _redirect(self, at: _ScriptPosition, kind: str, depth: int) -> None:
        """Parse a redirection or a process substitution."""
        text, draft = at.text, at.draft
        if kind in {"<", ">"} and text.startswith("(", at.position):
            body, at.position = balanced(text, at.position + 1)
            inner = self._inner(body, depth)
            if len(inner) == 1 and draft.stdin is None:
                draft.stdin = _literal_output(inner[0])
            draft.words.append(f"/dev/fd/{DOWNLOAD if _downloads(inner) else UNKNOWN}")
            return
        while text[at.position : at.position + 1] in {" ", "\t"}:
            at.position += 1
        if text.startswith(("<(", ">("), at.position):  # `bash < <(curl …)`
            body, at.position = balanced(text, at.position + 2)
            draft.upstream = [*reversed(self._inner(body, depth))]
            return
        word, quoted, at.position = self._word(text, at.position, depth)
        if kind == "<":
            draft.upstream = []  # it reads a file
        if kind == "<<<":
            draft.stdin = word
        elif kind.startswith("<<"):
            at.here.append((word, quoted))
        elif ">" in kind and not kind.endswith("&") and word != "/dev/null":
            draft.writes.append(self._path(word))

    def _take_bodies(self, at: _ScriptPosition, depth: int, position: int) -> None:
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

    def _inner(self, body: str, depth: int) -> list[UnfoldedCommand]:
        """Parse the commands of a substitution, which run, too."""
        inner = _ScriptReader(dict(self.variables))
        inner.directory = self.directory
        inner.read(body, depth + 1)
        self.steps += inner.steps
        return inner.steps

    def _substitute(self, body: str, depth: int) -> str:
        """Return the text that replaces a command substitution."""
        if found := _WHICH.match(body):
            return found[1]
        inner = self._inner(body, depth)
        if _downloads(inner):
            return DOWNLOAD
        literal = _literal_output(inner[-1]) if inner else None
        return literal if literal is not None else UNKNOWN

    def _substitutions(self, text: str, depth: int) -> None:
        """Parse command substitutions in the body of a here-document."""
        position = text.find("$(")
        while position >= 0:
            body, position = balanced(text, position + 2)
            self._inner(body, depth)
            position = text.find("$(", position)
        for body in _BACKTICKS.findall(text):
            self._inner(body, depth)

    def _word(self, text: str, position: int, depth: int) -> tuple[str, bool, int]:
        """Parse one word; return it, whether any of it was quoted, and the position after it."""
        end = _end_of_plain(_SPECIAL, text, position)
        if position < end and (end == len(text) or text[end] in _BREAKS):
            return text[position:end], False, end  # the usual case
        parts: list[str] = []
        quoted, start = False, position
        while position < len(text):
            character = text[position]
            if character in _BREAKS:
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
        return "".join(parts)[:MAX_SCRIPT_CHARS], quoted, max(position, start + 1)

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
        """Expand a variable or a command substitution, if the line determines it."""
        if text[position] == "`":
            close = text.find("`", position + 1)
            close = close if close >= 0 else len(text)
            return self._substitute(text[position + 1 : close], depth), close + 1
        if text.startswith("$((", position):
            close = text.find("))", position)
            close = close if close >= 0 else len(text)
            self._substitutions(text[position + 3 : close], depth)
            return "0", close + 2
        if text.startswith("$(", position):
            body, position = balanced(text, position + 2)
            return self._substitute(body, depth), position
        if text.startswith("${", position):
            close = text.find("}", position)
            close = close if close >= 0 else len(text)
            inside = text[position + 2 : close]
            if "$(" in inside or "`" in inside:
                self._substitutions(inside, depth)
            name = found.group() if (found := _NAME.match(inside)) else ""
            return self._value(name, inside[len(name) :]), close + 1
        found = _NAME.match(text, position + 1)
        if found is None:
            return "" if text.startswith('"', position + 1) else "$", position + 1
        return self._value(found.group(), ""), found.end()

    def _value(self, name: str, operation: str) -> str:
        if name == "IFS":
            return " "
        if name == "PWD" and self.directory:
            return self.directory
        known = self.variables.get(name)
        if not known and operation[:2] in {":-", ":="}:
            return operation[2:]
        return known[:MAX_VALUE_CHARS] if known is not None else f"${{{name}}}" if name else UNKNOWN

    def _path(self, word: str) -> str:
        """A path as the directory completes it."""
        if not self.directory or not word or word[0] in "/~$-" or word[0] == UNKNOWN or _DRIVE.match(word):
            return word
        return posixpath.join(self.directory, word)

    def _command(self, draft: _CommandDraft, depth: int) -> list[UnfoldedCommand]:
        """Add a command, and the commands that it runs."""
        words = draft.words
        if words and words[0] in LOOP_HEADS:
            if words[0] == "for" and len(words) > 3:
                self.variables[words[1]] = min(words[3:], key=_reach)
            return []
        self._assign(words)
        if draft.upstream or draft.stdin is not None:
            words = _with_arguments(draft)
        plain, privileged, script = without_wrappers(list(words))
        name = plain[0].rpartition("/")[2] if plain else ""
        name = interpreter(name) if name[-1:].isdigit() else name
        first = len(self.steps)
        step = UnfoldedCommand(plain, draft.writes, privileged, name, list(draft.upstream), draft.stdin, self.directory)
        self.steps.append(step)
        step.fetched = bool(plain) and DOWNLOAD in plain[0]
        if script is None and name == "eval":
            script = " ".join(plain[1:])
        if draft.writes and (text := _literal_output(step)) is not None:
            self.files.update((posixpath.normpath(path), text) for path in draft.writes)
        if script is not None:
            step.fetched = step.fetched or script.strip().startswith(DOWNLOAD)
            if name in SHELLS and script in plain:
                self.variables.update((str(at), word) for at, word in enumerate(plain[plain.index(script) + 1 :]) if at)
            self._run(script, privileged, depth)
        elif plain:
            self._open(step, depth)
        if step.upstream:
            _take_arguments(step, words)
        return self.steps[first:]

    def _open(self, step: UnfoldedCommand, depth: int) -> None:
        """Parse the commands that a command runs, by its own syntax."""
        name, words = step.name, step.words
        if name in self.aliases:
            line = self.aliases.pop(name)  # once: it may name itself
            self._run(" ".join([line, *words[1:]]), step.privileged, depth)
        elif (parse := _COMMAND_PARSERS.get(name)) is not None:
            parse(self, step, depth)
        elif name in LAUNCHERS:
            self._launch(step, depth)
        elif name in RUNNERS:
            self._program(step, depth)
        elif text := self._written(words[0]):
            self._run(text, step.privileged, depth)

    def trap(self, step: UnfoldedCommand, depth: int) -> None:
        if len(step.words) > 2:
            self._run(step.words[1], step.privileged, depth)

    def alias(self, step: UnfoldedCommand, _depth: int) -> None:
        for word in step.words[1:]:
            name, _, line = word.partition("=")
            self.aliases[name] = line

    def source(self, step: UnfoldedCommand, depth: int) -> None:
        words = step.words
        step.fetched = any(DOWNLOAD in word for word in words[1:])
        if len(words) > 1 and words[1].startswith(("/dev/stdin", "/dev/fd/")):
            self._run(input_of(step) or "", step.privileged, depth)

    def change_directory(self, step: UnfoldedCommand, _depth: int) -> None:
        targets = [word for word in step.words[1:] if word[:1] != "-"]
        self._enter(targets[0] if targets else "~" if len(step.words) < 2 else "-")

    def schedule(self, step: UnfoldedCommand, depth: int) -> None:
        lines = (input_of(step) or "").translate(_UNQUOTED)
        self._run(_SCHEDULE.sub("", lines), step.privileged, depth)

    def powershell(self, step: UnfoldedCommand, depth: int) -> None:
        self._run(_encoded(step.words), step.privileged, depth)

    def _assign(self, words: list[str]) -> None:
        for word in words:
            assigned = _ASSIGNMENT.match(word)
            if assigned is not None:
                before = self.variables.get(assigned.group(1), "") if assigned.group(2) else ""
                self.variables[assigned.group(1)] = (before + assigned.group(3))[:MAX_VALUE_CHARS]
            elif word not in {"export", "local", "declare", "readonly"}:
                break

    def _enter(self, directory: str) -> None:
        known = self.directory or directory[:1] in {"/", "~", "$"}
        self.directory = self._path(directory) if known else ""

    def _launch(self, step: UnfoldedCommand, depth: int) -> None:
        """Parse the command that a launcher runs."""
        words, line = launched(step.name, step.words)
        first = len(self.steps)
        if words:
            self._command(_CommandDraft(words, upstream=list(step.upstream), stdin=step.stdin), depth + 1)
        elif line:
            self._run(line, step.privileged, depth)
            for each in self.steps[first : first + 1]:
                each.upstream = each.upstream or list(step.upstream)
        if step.name == "ssh" and (not line or line.split()[0] in SHELLS) and (text := input_of(step)) is not None:
            self._run(text, step.privileged, depth)
        for each in self.steps[first:]:
            each.privileged = each.privileged or step.privileged

    def _run(self, script: str, privileged: str, depth: int) -> None:
        """Parse a nested script; its commands have the privileges of its caller."""
        first = len(self.steps)
        self.read(script.translate(_UNQUOTED), depth + 1)
        for step in self.steps[first:]:
            step.privileged = step.privileged or privileged

    def _program(self, step: UnfoldedCommand, depth: int) -> None:
        """Parse text piped into an interpreter, and commands in a program on the line."""
        from_file = len(step.words) > 1 and step.words[1].startswith("/dev/fd/")
        step.fetched = step.fetched or (from_file and DOWNLOAD in step.words[1])
        if from_file or runs_its_input(step):
            text = input_of(step)
            if text is not None:
                step.fetched = step.fetched or text.strip().startswith(DOWNLOAD)
                if step.name in SHELLS:
                    self._run(text, step.privileged, depth)
                else:
                    self._calls_in(text.translate(_UNQUOTED), step, depth)
        elif written := next((self._written(word) for word in step.words[1:] if word[:1] != "-"), ""):
            if step.name in SHELLS:
                self._run(written, step.privileged, depth)
            else:
                self._calls_in(written.translate(_UNQUOTED), step, depth)
        elif step.name not in SHELLS:
            for at, word in enumerate(step.words[1:]):
                given = step.words[at] in _PROGRAMS.get(step.name, ())
                step.fetched = step.fetched or (given and word.strip().startswith(DOWNLOAD))
                self._calls_in(word.translate(_UNQUOTED), step, depth)

    def _written(self, word: str) -> str:
        """Return text that this line has written to a file."""
        return self.files.get(posixpath.normpath(self._path(word)), "") if self.files else ""

    def run_program(self, program: str) -> None:
        """Parse the commands that a program runs."""
        self._calls_in(program, UnfoldedCommand(["python"], name="python"), 0)

    def _calls_in(self, program: str, caller: UnfoldedCommand, depth: int) -> None:
        """Parse commands that a program in another language runs."""
        for line in lines_in(program, backticks=caller.name in _BACKTICKED):
            self._run(line, caller.privileged, depth)
        for tree in trees_in(program):
            self._note(["rm", "-rf", tree], caller)

    def find(self, step: UnfoldedCommand, depth: int) -> None:
        """Parse the command that `find` runs or implies, applied to its start directories."""
        words = step.words
        starts = _starts(words)
        if is_narrowed(words):
            return
        if "-delete" in words:
            self._note(["rm", "-r", *starts], step)
        for at, word in enumerate(words):
            if word in {"-exec", "-execdir", "-ok", "-okdir"}:
                run = [each for each in words[at + 1 :] if each not in {";", "+"}]
                filled = [each for word in run for each in (starts if word == "{}" else [word])]
                if filled and filled[0].rpartition("/")[2] in {"rm", "unlink"}:
                    filled.insert(1, "-r")
                self._command(_CommandDraft(filled), depth + 1)

    def _note(self, words: list[str], caller: UnfoldedCommand) -> None:
        self.steps.append(UnfoldedCommand(words, [], caller.privileged, words[0], directory=caller.directory))


# Parsers of commands that run others, besides the table of launchers
_COMMAND_PARSERS: dict[str, Callable[[_ScriptReader, UnfoldedCommand, int], None]] = {
    "trap": _ScriptReader.trap,
    "alias": _ScriptReader.alias,
    "source": _ScriptReader.source,
    ".": _ScriptReader.source,
    "cd": _ScriptReader.change_directory,
    "pushd": _ScriptReader.change_directory,
    "at": _ScriptReader.schedule,
    "crontab": _ScriptReader.schedule,
    "powershell": _ScriptReader.powershell,
    "pwsh": _ScriptReader.powershell,
    "find": _ScriptReader.find,
}


def _downloads(steps: list[UnfoldedCommand]) -> bool:
    return any(step.name in DOWNLOADERS for step in steps)


def _starts(words: list[str]) -> list[str]:
    """Return the start directories of a `find`."""
    starts: list[str] = []
    for word in words[1:]:
        if word[:1] in {"(", "!"} or (word.startswith("-") and word not in {"-L", "-H", "-P"}):
            break
        starts += [] if word.startswith("-") else [word]
    return starts


def is_narrowed(words: list[str]) -> bool:
    """Whether a `find` excludes most files."""
    return any(
        word in _NARROWING and words[at + 1 : at + 2] not in (["*"], ["\ue003"]) for at, word in enumerate(words)
    )


def _with_arguments(draft: _CommandDraft) -> list[str]:
    """Words of a command; where `xargs -I{}` fills what it reads into them, with that."""
    words = draft.words
    at = next((at for at, word in enumerate(words[:8]) if word.rpartition("/")[2] == "xargs"), -1)
    if at < 0:
        return words
    mark = ""
    for place, word in enumerate(words[at + 1 :], start=at + 1):
        if word[:2] == "-I" or word[:9] == "--replace":
            mark = word[2:] if word[:2] == "-I" else word[10:]
            mark = mark or (words[place + 1] if word == "-I" and place + 1 < len(words) else "{}")
            break
    given = draft.stdin if draft.stdin is not None else _literal_output(draft.upstream[0])
    if given is None:
        source = draft.upstream[0]
        starts = _starts(source.words) if source.name == "find" and not is_narrowed(source.words) else []
        given = DOWNLOAD if _downloads(draft.upstream) else " ".join(starts[:1])
    if not given:
        return words
    if mark:
        filled = given.strip()[:_MAX_FILLED]
        return [*words[: at + 1], *(word.replace(mark, filled, _MAX_FILLED) for word in words[at + 1 :])]
    return [*words, given] if given == DOWNLOAD and words[-1] == "-c" else words


def _encoded(words: list[str]) -> str:
    """Return the script of `powershell -EncodedCommand …`."""
    for at, word in enumerate(words[:-1]):
        if word[:2].lower() == "-e" and "-encodedcommand".startswith(word.lower()):
            try:
                return base64.b64decode(words[at + 1] + "==").decode("utf-16-le", errors="replace")
            except (binascii.Error, ValueError):
                return ""
    return ""


def _reach(path: str) -> tuple[bool, int]:
    """Sort key of paths by their reach: the value of a loop that reaches farthest stands for all of its values."""
    return path[:1] not in {"/", "~", "$"}, len(path)


def _take_arguments(step: UnfoldedCommand, words: list[str]) -> None:
    """Give a command that `xargs` runs the arguments that come through the pipe, where the line says which.

    `words`: the command with what stands before it.
    """
    source = step.upstream[0]
    if step.name.lower() in {"remove-item", "ri"} and source.name.lower() in _LISTERS:
        step.words += [word for word in source.words[1:] if word[:1] != "-"]
        return
    if not any(word.rpartition("/")[2] in {"xargs", "parallel"} for word in words[:8]):
        return
    given = _literal_output(source)
    if given is not None:
        step.words += given.split()
    elif source.name == "ls":
        step.words += [word for word in source.words[1:] if not word.startswith("-")]
    elif source.name == "find" and not is_narrowed(source.words):
        step.words += (["-r"] if step.name == "rm" else []) + _starts(source.words)


def _end_of_plain(special: re.Pattern[str], text: str, position: int) -> int:
    """Return the position of the first special character after a position, or the end of the text."""
    found = special.search(text, position)
    return found.start() if found else len(text)


def _alone(text: str, position: int) -> bool:
    """Whether a brace is a separate word."""
    before, after = text[position - 1 : position] if position else " ", text[position + 1 : position + 2]
    return before in " \t\n;|&()" and (not after or after in " \t\n;|&()")


def _here_document(text: str, position: int, delimiter: str) -> tuple[str, int]:
    """Return the body of a here-document, and the position after it."""
    start = position
    while position < len(text):
        close = text.find("\n", position)
        line = text[position : close if close >= 0 else len(text)]
        following = close + 1 if close >= 0 else len(text)
        if line.strip("\t") == delimiter:
            return text[start:position], following
        position = following
    if "((" in text[:start]:
        return "", start  # no here-document: a shift in arithmetic
    return text[start:], len(text)


def _ansi(text: str) -> str:
    r"""Text of `$'…'`: `\x72` is a letter."""
    try:
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError:
        return text

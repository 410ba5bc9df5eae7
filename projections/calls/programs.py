"""Reads the failure of a command line by the table of its programs (`program_table.py`; docs/classification.md).

In two steps, since the line is known when a call starts and the message when it ends: `asked_by` keeps of the line
the little that judges its failure, `read` judges. No text of the line is kept but the name of a host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from ...security.redaction import redact_text
from .hosts import host_in_message, host_of_url, named
from .program_table import (
    ANSWERS,
    FILTERS,
    QUIET,
    SERVICES,
    SHARED_AWAY,
    SHARED_REFUSED,
    AnsweringPrograms,
    ServiceSigns,
)
from .shell import SimpleCommand

HEAD_CHARS = 3000
TAIL_CHARS = 1000  # Characters of a message that are read, at its start and at its end
MAX_WORDS = 64  # Number of words of a command that are looked at


def _by_program(rows: Iterable[AnsweringPrograms]) -> dict[str, tuple[AnsweringPrograms, ...]]:
    found: dict[str, tuple[AnsweringPrograms, ...]] = {}
    for row in rows:
        for program in row.programs:
            found[program] = (*found.get(program, ()), row)
    return found


_ANSWERS = _by_program(ANSWERS)
_SERVICES = {program: row for row in SERVICES for program in row.programs}
_KNOWN = _ANSWERS.keys() | _SERVICES.keys()
_ANY_SERVICE = ServiceSigns((), login=True, statuses=True)  # What a service that rules name for a program is read by

# Options before a subcommand that take a value of their own
_VALUED = frozenset(
    """-C -c -n -R -r -h -H -p -P -U -u -f -o --namespace --context --repo --kubeconfig --git-dir --work-tree --project
    --profile --region --prefix --filter --directory -w --workspace""".split()
)

_COMPLAINT = re.compile(rf"(?:\A|\n|: )(?:{'|'.join(re.escape(name) for name in sorted(QUIET) if name.isalnum())}): ")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:]{2,45}\]|[A-Za-z0-9_][\w.-]{0,252})(?::\d{1,5})?\Z")
_BARE_URL = re.compile(
    r"((?:[A-Za-z0-9_-]{1,63}\.){1,8}[A-Za-z]{2,24}|localhost|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f:]{2,45}\])(?::(\d{1,5}))?(?=[/?]|\Z)"
)
_STATUS = re.compile(r"(?<=[ :=(])[45]\d\d\b")
_BEFORE_STATUS = re.compile(
    r"(?:\berror:?|\bhttps?(?:/\d(?:\.\d)?)?(?: error)?:?|\bstatus(?: code)?:?|\bcode:?|\breturned"
    r"|\bresponse(?: code)?:?|\.\.\.)[ :=(]{1,3}\Z"
)
_BEFORE_CHARS = 24
MAX_NUMBERS = 32  # Number of numbers of a message that are looked at, as HTTP statuses

_CURL = re.compile(r"\bcurl: \((\d{1,2})\)")

_IDLE = frozenset({"--version", "-V", "version", "--help", "help", "completion"})  # Words of calls that talk to nobody

_WAITS = frozenset({"sleep", "usleep", "wait", "watch", "wait-for-it", "wait-for-it.sh", "Start-Sleep"})

_PIPES = frozenset({"|", "|&"})

# Exit codes that are answers, each with texts of which the message must have one; without texts any message does
AnswerCodes = tuple[tuple[int, tuple[str, ...]], ...]


class CommandRequest(NamedTuple):
    """Request of a command line, as far as its failure is judged by it."""

    answers: AnswerCodes = ()  # exit codes that are answers of it
    program: str = ""  # program with a service behind it; empty: none
    host: str = ""  # the service, where the line or a rule names it
    last: bool = False  # the exit code is that of the program with a service
    own_words: bool = False  # another program may speak, so that only the program's own words count


NOTHING_ASKED = CommandRequest()


class FailureReading(NamedTuple):
    """Reading of a command line's failure: an answer, or a service that is away or refuses."""

    answer: bool = False  # it is an answer of the program, and so no failure
    # the service behind the program is away, or refuses the caller; empty: neither
    kind: Literal["", "away", "refused"] = ""
    service: str = ""  # its name: `db.internal:5432`, or with a login of the program's own `gh@github.com`


NOTHING = FailureReading()


def read_failure(
    commands: Sequence[SimpleCommand], exit_code: int | None, message: str, own: Mapping[str, str] | None = None
) -> FailureReading:
    """Read the failure of a command line; `own` are services of programs by rules (`tools.programs`)."""
    return read(asked_by(commands, own or {}), exit_code, message)


def asked_by(commands: Sequence[SimpleCommand], own: Mapping[str, str]) -> CommandRequest:
    """Return what a command line asks: of the commands that its exit code can come from."""
    if not own and _KNOWN.isdisjoint([command.name for command in commands]):
        return NOTHING_ASKED
    pipelines = _last_list(commands)
    answers: dict[int, tuple[str, ...]] | None = None
    for pipeline in pipelines:
        command, codes = _judged(pipeline)
        if not codes and command.name in QUIET:
            continue  # where it fails, the message says so
        answers = codes if answers is None else _both(answers, codes)
    found = tuple(sorted(answers.items())) if answers else ()
    if any(command.name in _WAITS for command in commands):
        pipelines = []  # who waits for a service does not miss it
    for pipeline in reversed(pipelines):
        for command in reversed(pipeline):
            row = _service_of(command, own)
            if row is None:
                continue
            words = command.words[1:MAX_WORDS]
            host = own.get(command.name) or _host_of_line(row, words)
            return CommandRequest(
                found,
                command.name,
                host if redact_text(host) == host else "",
                last=command is pipeline[-1] and pipeline is pipelines[-1],
                own_words=_is_subcommand(row.runs, words),
            )
    return CommandRequest(found) if found else NOTHING_ASKED


def read(asked: CommandRequest, exit_code: int | None, message: str) -> FailureReading:
    """Read a failure of a command line that asked something; its exit code is None if nobody reported one."""
    if not asked.answers and not asked.program:
        return NOTHING
    text = message if len(message) <= HEAD_CHARS + TAIL_CHARS else message[:HEAD_CHARS] + "\n" + message[-TAIL_CHARS:]
    text = text.lower()
    if asked.program:
        row = _SERVICES.get(asked.program, _ANY_SERVICE)
        kind = _kind(row, asked, exit_code, text)
        if kind and (service := _name_of(row, asked, kind, text)):
            return FailureReading(kind=kind, service=service)
    for code, says in asked.answers:
        if code == exit_code and (not says or _has(text, says)) and not _COMPLAINT.search(text):
            return FailureReading(answer=True)
    return NOTHING


def service_asked(asked: CommandRequest) -> str:
    """Return the service that a successful line has talked to; empty if neither it nor the table surely names one."""
    if asked.host or asked.own_words or asked.program not in _SERVICES:
        return asked.host
    return _SERVICES[asked.program].default


def _kind(row: ServiceSigns, asked: CommandRequest, exit_code: int | None, text: str) -> Literal["", "away", "refused"]:
    code = exit_code if asked.last else None
    if asked.program == "curl" and (told := _CURL.search(text)):
        code = int(told.group(1))
    if code in row.refused or _has(text, row.says_refused):
        return "refused"
    if not asked.own_words:
        if row.login and _has(text, SHARED_REFUSED):
            return "refused"
        if row.statuses and (status := _status_in(text)):
            if status in {401, 403, 407}:
                return "away" if "rate limit" in text else "refused"
            return "away" if status >= 500 or status == 429 else ""
    if _has(text, row.says_away):
        return "away"
    if _has(text, row.says_up):
        return ""
    return "away" if code in row.away or (not asked.own_words and _has(text, SHARED_AWAY)) else ""


def _status_in(text: str) -> int:
    """Return the first HTTP status that a message in lower case names; 0 without one."""
    for found in islice(_STATUS.finditer(text), MAX_NUMBERS):
        if _BEFORE_STATUS.search(text, max(0, found.start() - _BEFORE_CHARS), found.start()):
            return int(found[0])
    return 0


def _name_of(row: ServiceSigns, asked: CommandRequest, kind: str, text: str) -> str:
    """Return the name of a service: as the line has it, else the message, else by default."""
    told = "" if kind == "refused" and row.default else host_in_message(text)
    if row.login and row.default and told.endswith("." + row.default):
        told = row.default
    service = asked.host or (told if redact_text(told) == told else "") or row.default
    return f"{asked.program}@{service}" if service and kind == "refused" and row.login else service


def _has(text: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in text for phrase in phrases)


def _last_list(commands: Sequence[SimpleCommand]) -> list[list[SimpleCommand]]:
    """Return the pipelines that a line's exit code can come from: the last, and those that `&&` joins to it."""
    pipelines: list[list[SimpleCommand]] = []
    before = ";"
    for command in commands:
        if not command.words:
            continue
        if before in _PIPES:
            pipelines[-1].append(command)
        elif before == "&&":
            pipelines.append([command])
        else:
            pipelines = [[command]]
        before = command.then
    return pipelines


def _judged(pipeline: Sequence[SimpleCommand]) -> tuple[SimpleCommand, dict[int, tuple[str, ...]]]:
    """Return the command of a pipeline that its failure is judged by, the last that is no mere filter; its answers."""
    last = pipeline[-1]
    answers = _answers_of(last)
    if answers or last.name not in FILTERS:
        return last, answers
    judged = next((one for one in reversed(pipeline) if one.name not in FILTERS), last)
    return judged, _answers_of(judged)


def _answers_of(command: SimpleCommand) -> dict[int, tuple[str, ...]]:
    """Return the exit codes by which a command answers, each with texts of which its message must have one."""
    codes: dict[int, tuple[str, ...]] = {}
    rows = _ANSWERS.get(command.name)
    if rows is None:
        return codes
    words = command.words[1:MAX_WORDS]
    for row in rows:
        if row.options and not any(word in row.options or word.partition("=")[0] in row.options for word in words):
            continue
        if row.subcommands and not _is_subcommand(row.subcommands, words):
            continue
        for code in row.codes:
            known = codes.get(code)
            codes[code] = row.says if known is None else (*known, *row.says) if known and row.says else ()
    return codes


def _is_subcommand(subcommands: tuple[str, ...], words: Sequence[str]) -> bool:
    if "*" in subcommands:
        return True
    plain: list[str] = []
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
        elif word.startswith("-"):
            takes_value = not plain and word in _VALUED
        else:
            plain.append(word)
            if len(plain) == 2:
                break
    return bool(plain) and (plain[0] in subcommands or " ".join(plain) in subcommands)


def _both(one: dict[int, tuple[str, ...]], other: dict[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """Return the codes that are answers of two commands, since either may have given the exit code."""
    return {code: (*says, *other[code]) for code, says in one.items() if code in other}


def _service_of(command: SimpleCommand, own: Mapping[str, str]) -> ServiceSigns | None:
    """Return the row of the service that a command talks to, by rules and by the table; None if to none."""
    if command.name in own:
        return _SERVICES.get(command.name, _ANY_SERVICE) if own[command.name] else None
    row = _SERVICES.get(command.name)
    if row is None or not _IDLE.isdisjoint(command.words[1:3]):
        return None
    talks = not row.subcommands or _is_subcommand(row.subcommands, command.words[1:MAX_WORDS])
    return row if talks else None


def _host_of_line(row: ServiceSigns, words: Sequence[str]) -> str:
    """Return the host that a command's words name; empty if they name none."""
    port = _option(words, row.port_options)
    if value := _option(words, row.host_options):
        host = host_of_url(value)
        if not host and _HOST.match(value):
            name, _, given = value.partition(":") if value[:1] != "[" else (value, "", "")
            host = named(name, given or port or _default_port(row))
        return host
    operands = _operands(words, row.valued | frozenset(row.port_options) | frozenset(row.host_options))
    if row.operand or not row.default or _default_port(row):  # else a URL is no address of the service
        for word in operands if row.operand == "url" else words:
            if "://" in word and (host := host_of_url(word)):
                return host
    for word in operands:
        if host := _host_of_operand(row.operand, word):
            return named(host, port) if port and ":" not in host else host
        if row.operand == "target":
            break
    return named(row.default.rpartition(":")[0], port) if port and _default_port(row) else ""


def _default_port(row: ServiceSigns) -> str:
    """Return the port at which a program's service listens by default; empty if it has none."""
    port = row.default.rpartition(":")[2]
    return port if port.isdecimal() else ""


def _host_of_operand(form: str, word: str) -> str:
    """Return the host in an operand of some form; empty without one."""
    if form == "url":
        found = _BARE_URL.match(word)
        return named(found.group(1), found.group(2) or "") if found else ""
    if form == "unc":
        host = word.replace("\\", "/").lstrip("/").partition("/")[0] if word[:2] in {"//", "\\\\"} else ""
    elif form == "path":
        before, colon, _ = word.partition(":")
        host = before.rpartition("@")[2] if colon and "/" not in before else ""
    elif form == "target":
        host = word.rpartition("@")[2]
    else:
        return ""
    return named(host) if host and _HOST.match(host) else ""


def _option(words: Sequence[str], options: tuple[str, ...]) -> str:
    """Return the value of the first of some options: `-h db`, `-hdb`, `--host=db`, `--host db`."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in options:
            return value if equals else words[at + 1] if at + 1 < len(words) and words[at + 1][:1] != "-" else ""
        if word[:1] == "-" and word[1:2] != "-" and len(word) > 2 and word[:2] in options and word not in options:
            return word[2:]
    return ""


def _operands(words: Sequence[str], valued: frozenset[str]) -> list[str]:
    """Return the words that are neither options nor their values."""
    found: list[str] = []
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
        elif word[:1] == "-" and len(word) > 1:
            takes_value = word in valued
        else:
            found.append(word)
    return found

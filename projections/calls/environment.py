"""Recognition of a missing environment in failures: a program, a module, a credential, a host, the network.

The model cannot make up for it with other words, only by installing, logging in, starting, or asking; so the same
missing thing behind four tools is one finding. A capital first letter is prose that was taken for a command; a 403
alone is no missing credential (sites refuse robots); time-outs count for package managers alone. A line that waits
(`sleep 5; curl …`) and fails is a poll: its caller leaves it out.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal, NamedTuple

from ...schemas.vocabulary import FailureSeverity
from ...security.redaction import redact_text
from .hosts import host_in_message, host_in_request, host_of_url, is_loopback
from .program_table import SERVICES
from .word_search import WordSearch

__all__ = ["MissingPart", "is_loopback", "missing_in", "restored_by"]

HEAD_CHARS = 3000
TAIL_CHARS = 1000  # Characters of a message that are read, at its start and at its end

MAX_REQUEST_CHARS = 4000
MAX_MENTIONS = 16  # Number of mentions of a host in a request that are looked at

MissingKind = Literal["program", "module", "credential", "host", "network"]


class MissingPart(NamedTuple):
    """Part of a tool's environment that is missing: a program, module, host or credential."""

    kind: MissingKind  # what it is
    name: str  # program, module, host or service, host with port, package manager


_P = r"(\w[\w.+-]{0,63})"
_DIGEST_CHARS = 32
_RUNNERS = r"(?:xargs|nohup|sudo|time|nice|make(?:\[\d{1,3}\])?|gmake|exec|strace|watch)"
_NO_FIND = r"(?:failed to find tool|[Uu]nable to find|[Cc]ould not find|[Cc]ouldn't find)"
# What shells say in other languages
_NOT_FOUND = (
    "commande introuvable", "orden no encontrada", "comando non trovato", "comando não encontrado", "Kommando nicht gefunden.",
    "Befehl nicht gefunden", "opdracht niet gevonden", "nie znaleziono polecenia", "команда не найдена", "未找到命令", "找不到命令",
    "コマンドが見つかりません", "명령어를 찾을 수 없음", "명령을 찾을 수 없습니다",
)  # fmt: skip
_NOT_RECOGNISED = (
    "ist entweder falsch geschrieben", "wurde nicht als Name eines Cmdlet", "n'est pas reconnu", "no se reconoce como",
    "non è riconosciuto come", "não é reconhecido como", "не является внутренней или внешней", "不是内部或外部命令",
)  # fmt: skip
# Text that a message has, and the pattern that finds the program in it
_PROGRAMS = tuple(
    (hint, re.compile(pattern, re.MULTILINE))
    for hint, pattern in (
        ("command not found: ", rf"command not found: {_P}"),
        (": command not found", rf"(?:^|: ?){_P}: command not found(?!: \S)"),
        ("Unknown command: ", rf"^(?:fish: )?Unknown command: {_P}"),
        ("' is not recognized as", rf"'{_P}' is not recognized as"),
        ("The term '", rf"The term '{_P}' is not recognized"),
        ("executable file not found", rf"exec: \"{_P}\": executable file not found"),
        (": not found", rf"(?:^|[\s/])(?:ba|da|z|a)?sh: (?:\d{{1,9}}: |line \d{{1,9}}: )?(?:exec: )?{_P}: not found"),
        (": No such file", rf"\benv: [‘'\"]?{_P}[’'\"]?: No such file"),
        ("failed to run command", rf"failed to run command [‘'\"]{_P}[’'\"]: No such file"),
        (": No such file or directory", rf"^{_RUNNERS}: {_P}: No such file or directory"),
        ("ommand not found", rf"^{_RUNNERS}: {_P}: [Cc]ommand not found"),
        (" ENOENT", rf"\bspawn {_P} ENOENT"),
        (" not found, but", rf"\bCommand '{_P}' not found, but"),
        ("is currently not installed", rf"The program '{_P}' is currently not installed"),
        ("unable to execute '", rf"\bunable to execute '{_P}'"),
        (" failed: No such file", rf"(?<!\S)'?{_P}'? failed: No such file or directory"),
        ("linker ", rf"\blinker `?{_P}`? not found"),
        ("find ", rf"\b{_NO_FIND} [\"'`]?{_P}[\"'`]? (?:executable|binary|in (?:your |the )?\$?PATH)"),
        ("command could be found", rf"\bno '?{_P}'? command could be found in your PATH"),
        ("command could not be found", rf"\bThe {_P} command could not be found"),
        *((f": {words}", rf"(?:^|: ?){_P} ?: {words}") for words in _NOT_FOUND),
        *((words, rf"[\"'«„ ]{_P}[\"'»“ ]{{1,2}}{words}") for words in _NOT_RECOGNISED),
    )
)

# Sentences that name a program in other words
_COMPILERS = (
    ("No CMAKE_C_COMPILER could be found", "cc"),
    ("No CMAKE_CXX_COMPILER could be found", "c++"),
    ("no acceptable C compiler found", "cc"),
    ("C compiler cannot create executables", "cc"),
    ("Microsoft Visual C++ 14.0 or greater is required", "cl"),
    ('unable to find a build program corresponding to "Ninja"', "ninja"),
    ('unable to find a build program corresponding to "Unix Makefiles"', "make"),
    ("Unable to locate a Java Runtime", "java"),
    ("invalid active developer path", "xcrun"),
    ("Is rustup installed", "rustup"),
)  # fmt: skip

_MODULE = re.compile(
    r"\bNo module named '?([A-Za-z_]\w{0,63})"
    r"|\bCannot find (?:module|package) '(@[\w.-]{1,64}/[\w.-]{1,64}|(?:node:)?[\w-][\w.-]{0,63})(?=['/])"
    r"|\bcannot load such file -- ([A-Za-z][\w/-]{0,63})\b(?!\.rb)"
    r"|\byou may need to install the ([A-Za-z_][\w:]{0,63}) module"
    r"|\bno required module provides package ([\w.-]{1,64}(?:/[\w.-]{1,64}){0,6})"
    r"|\bthere is no package called [‘'\"]([A-Za-z][\w.]{0,63})"
    r"|\bmodule '([\w.-]{1,64})' not found:\s{0,3}\n"
    r"|\berror while loading shared libraries: ([\w.+-]{1,64}):"
)
_MODULE_HINTS = ("o module named", "Cannot find", "cannot load such", "may need to install", "required module", "no package called", "not found:", "shared libraries")  # fmt: skip
_BROWSER = "playwright install"

_CREDENTIAL = (
    "bad credentials", "expired token", "expiredtoken", "token has expired", "token is expired", "token expired", "token is invalid",
    "token has been revoked", "token was revoked", "token invalid", "invalid token", "invalid api key", "invalid api-key",
    "incorrect api key", "missing api key", "api key not found", "no api key", "authentication failed", "authentication required",
    "requires authentication", "not logged in", "could not read username", "unable to locate credentials", "no credentials",
    "must authenticate", "gh auth login", "az login", "gcloud auth login", "npm login", "docker login", "invalid_grant", "eneedauth",
    "code e401", "invalidclienttokenid", "permission denied (publickey", "must be logged in to the server", "unauthenticated",
    "support for password authentication was removed", ": unauthorized", "unauthorized: ", "not authenticated", "invalid_auth",
    "invalid credentials", "credentials have expired", "credentials expired", "session has expired", "session expired",
    "sso session", "login required", "please log in", "please login", "auth login",
)  # fmt: skip
_401 = re.compile(
    r"\b401\b[^\n]{0,40}?(?:unauthori[sz]ed|credential|token|auth)"
    r"|\b(?:https?(?:/\d(?:\.\d)?)?|error:?|status(?: code)?:?|code:?|returned|unauthori[sz]ed:?)[ :=(]{1,3}401\b"
)
# Requests that run tests: a refused login in their output may well be what they test
_CHECKS = re.compile(
    r"\b(?:test|tests|spec|pytest|jest|vitest|mocha|rspec|phpunit|unittest|ctest|nosetests|tox|nox|playwright)\b"
)

_AWAY = (
    "connection refused", "econnrefused", "could not resolve", "couldn't resolve", "enotfound", "eai_again", "failed to connect",
    "couldn't connect", "no such host", "name resolution", "failure resolving", "failed to resolve", "could not translate host name",
    "name or service not known", "nodename nor servname", "network is unreachable", "network unreachable", "no route to host",
    "cannot connect to the docker daemon", "dial tcp", "connection reset", "err_connection_refused", "err_name_not_resolved",
    "err_internet_disconnected", "docker daemon is not running", "connection failed for url", "could not connect to redis", "mongonetworkerror", "can't connect to", "did you specify the right host or port",
)  # fmt: skip
_DOCKER = "docker daemon"
_TIMED_OUT = ("timed out", "etimedout", "socket timeout", "read timeout", "connect timeout")
# Programs that do little but load packages, and the one name of each
PACKAGE_MANAGERS = {
    **{name: name for name in """apt apk yum dnf zypper pacman brew snap npm pnpm yarn bun pip uv poetry pipenv pdm conda
    mamba gem bundle composer choco winget nuget""".split()},
    "apt-get": "apt", "pip3": "pip",
}  # fmt: skip

_INSTALLERS = PACKAGE_MANAGERS.keys() | {
    "go",
    "dotnet",
    "pipx",
    "uvx",
    "cpan",
    "cpanm",
    "luarocks",
    "rustup",
    "nvm",
    "asdf",
    "mise",
}
_PIP_MODULE = re.compile(r"-m\s{1,4}(?:uv\s{1,4})?pip\b")
_INTERPRETERS = frozenset(
    """python python3 node deno bun npx tsx ts-node ruby perl php java rscript bash sh make npm pnpm yarn uv poetry go cargo
    dotnet mvn gradle gradlew""".split()
)
_SOME_API = "an API"  # Who refuses a script, where its message names nobody: other scripts very likely call the same

# Calls of network programs that talk to nobody
_OFFLINE = re.compile(r"\s(?:--?version|-[vV]|version|--?help|-h|help|config|completion)(?:\s|\Z)")

# Calls of package managers that load nothing, or run programs of the project
_LOCAL = re.compile(r"\s(?:list|ls|show|freeze|cache|run|test|t|exec|env|info|start|build|dev)(?:\s|\Z)")

# Programs that talk to no host, whatever hosts their words name
_QUIET = frozenset(
    """grep egrep fgrep rg ag cat bat head tail less more echo printf sed awk find fd ls tree wc sort uniq cut tr jq yq diff cp mv
    rm mkdir touch vi vim nano export cd tee""".split()
)

# Every text that says that something is missing has one of these in lower case, but for time-outs told by a status
_TELLING = WordSearch(
    {
        *(hint.lower() for hint, _ in (*_PROGRAMS, *_COMPILERS)),
        *(hint.lower() for hint in (*_MODULE_HINTS, _BROWSER)),
        *(*_CREDENTIAL, "401", *_AWAY, *_TIMED_OUT),
    }
)

_PROSE = frozenset(
    """to the and of a an is it in on for this that i we you he they now next let so if no yes ok okay please done finally first
    also here there thought action observation output answer note result""".split()
)
_DEFAULTS = {program: row.default for row in SERVICES if row.login and row.default for program in row.programs}


def missing_in(
    message: str,
    *,
    tool_name: str,
    command_word: str,
    request: str,
    service: str,
    severity: FailureSeverity | None,
    http_status: int | None = None,
) -> MissingPart | None:
    """Return what a failure says is missing around the tool; None if it says nothing of the kind.

    Of a success that is a shell's short output only a missing program counts (a pipe hides the exit code):
    `severity` is None then.

    Args:
        message: text of the failure, or the output.
        tool_name: name of the tool.
        command_word: command word of a shell call; empty for other tools.
        request: command line, or text of the arguments.
        service: service of the call; empty without one.
        severity: of the failure.
        http_status: of the failure, where it is told beside the message.
    """
    if http_status == 401:
        message = f"401 unauthorized\n{message}"
    found = _missing_in(message, tool_name, command_word, request[:MAX_REQUEST_CHARS], service, severity)
    return found if found is not None and redact_text(found.name) == found.name else None


def _missing_in(
    message: str, tool_name: str, command_word: str, request: str, service: str, severity: FailureSeverity | None
) -> MissingPart | None:
    text = message if len(message) <= HEAD_CHARS + TAIL_CHARS else message[:HEAD_CHARS] + "\n" + message[-TAIL_CHARS:]
    low = text.lower()
    if severity is not FailureSeverity.TIMEOUT and not _TELLING.finds_any(low):
        return None
    if (program := _program_in(text)) and (program in request or not request.lstrip().startswith(("`", "$("))):
        return MissingPart("program", program)  # else output of a substitution was run as a command
    if severity is None:
        return None
    if module := _module_in(text):
        return MissingPart("module", module)
    manager = _manager(command_word, request)
    if _is_refused(low, severity) and not (command_word and _CHECKS.search(request.lower())):
        caller = _SOME_API if command_word in _INTERPRETERS else command_word or tool_name
        return MissingPart("credential", _refused_by(low, request, command_word) or service or caller)
    if any(map(low.__contains__, _AWAY)):
        host = _DOCKER if "docker daemon" in low else host_in_message(low) or host_in_request(request)
        if manager and not (host and _names(request.lower(), host)):
            return MissingPart("network", manager)
        return MissingPart("host", host) if host else None
    if manager and (severity is FailureSeverity.TIMEOUT or any(map(low.__contains__, _TIMED_OUT))):
        return MissingPart("network", manager)
    return None


def restored_by(missing: MissingPart, *, programs: Collection[str], request: str, tool: str) -> bool:
    """Whether a successful call shows that a missing thing is there again.

    A host on this machine may also be back after any success of unknown effect: its caller knows that.

    Args:
        missing: the missing thing.
        programs: programs of a shell call; empty for other tools.
        request: command line, or text of the arguments.
        tool: command word of a shell call, else the tool's name.
    """
    request = request[:MAX_REQUEST_CHARS]
    name = missing.name
    match missing.kind:
        case "program":
            return name in programs or name == tool
        case "module":
            return name in request or (bool(_INSTALLERS.intersection(programs)) and not _LOCAL.search(request))
        case "network":
            return any(_manager(one, request) == name for one in (*programs, tool))
    if programs and all(one in _QUIET for one in programs):
        return False
    if name == _DOCKER:
        return bool({"docker", "docker-compose"}.intersection((*programs, tool))) and not _OFFLINE.search(request)
    if _names(request.lower(), name):
        return True
    if missing.kind == "host":
        return False
    return name == tool or (_DEFAULTS.get(tool) == name and not _OFFLINE.search(request))


def _program_in(text: str) -> str:
    for hint, pattern in _PROGRAMS:
        if hint not in text:
            continue
        found = pattern.search(text)
        if found is not None and found[1] != "cd":
            return "" if _is_prose(found[1]) else found[1]
    return next((name for sentence, name in _COMPILERS if sentence in text), "")


def _is_prose(name: str) -> bool:
    """Whether a word is none of a program's: prose, or a number or a digest that a substitution put there."""
    return (
        name[:1].isupper()
        or name in _PROSE
        or not name.rstrip("KMGT").strip("0123456789.")
        or len(name) >= _DIGEST_CHARS
    )


def _module_in(text: str) -> str:
    if _BROWSER in text and "Executable doesn't exist" in text:
        return _BROWSER
    found = _MODULE.search(text) if any(hint in text for hint in _MODULE_HINTS) else None
    return next((name for name in found.groups() if name), "") if found else ""


def _is_refused(text: str, severity: FailureSeverity) -> bool:
    if any(map(text.__contains__, _CREDENTIAL)):
        return True
    return "401" in text and (severity is FailureSeverity.PERMISSION or _401.search(text) is not None)


def _refused_by(text: str, request: str, program: str) -> str:
    """Return who refuses: the host that the message or the request names, else where the program has its login."""
    host = host_of_url(text) or host_of_url(request) or host_in_message(text)
    login = _DEFAULTS.get(program, "")
    if not host or (login and host.endswith("." + login)):
        return login
    return host.removeprefix("api.").removeprefix("www.")


def _manager(program: str, request: str) -> str:
    """Return the package manager by which a line loads packages; empty if it loads none."""
    manager = PACKAGE_MANAGERS.get(program, "")
    if not manager and program.startswith("python") and _PIP_MODULE.search(request):
        manager = "pip"
    return "" if not manager or _LOCAL.search(request) or _OFFLINE.search(request) else manager


def _names(request: str, host: str) -> bool:
    """Whether a request names a host, and no other port of it."""
    name, _, port = host.rpartition(":")
    if not port.isdecimal():
        name, port = host, ""
    spellings = ("localhost", "127.0.0.1", "[::1]") if name == "localhost" else (name,)
    for spelling in spellings:
        at = -1
        for _ in range(MAX_MENTIONS):
            at = request.find(spelling, at + 1)
            if at < 0:
                break
            behind = request[at + len(spelling) : at + len(spelling) + 7]
            told = behind[1:] if behind[:1] == ":" else ""
            digits = told[: len(told) - len(told.lstrip("0123456789"))]
            if not digits or not port or digits == port:
                return True
    return False

"""What a failure says is missing around a tool: a program, a module, a credential, a host, the network.

The model cannot make up for it with other words, only by installing, logging in, starting, or asking; so the same
missing thing behind four tools is one finding. A capital first letter is prose that was taken for a command; a 403
alone is no missing credential (sites refuse robots); time-outs count for package managers alone. A line that waits
(`sleep 5; curl …`) and fails is a poll: its caller leaves it out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from ...schemas.vocabulary import Severity
from ...security.redaction import redact_text
from .hosts import host_in_message, host_of_url, is_loopback
from .program_table import SERVICES

__all__ = ["Missing", "is_loopback", "missing_in", "restored_by"]

HEAD_CHARS = 3000
TAIL_CHARS = 1000
"""Characters of a message that are read, at its start and at its end."""

MAX_REQUEST_CHARS = 4000
MAX_MENTIONS = 16
"""Number of mentions of a host in a request that are looked at."""

MissingKind = Literal["program", "module", "credential", "host", "network"]


class Missing(NamedTuple):
    """What is missing around a tool.

    Attributes:
        kind: what it is.
        name: program, module, host or service, host with port, package manager.
    """

    kind: MissingKind
    name: str


_P = r"([\w.+-]{1,64})"
_PROGRAM = re.compile(
    "|".join(
        (
            rf"command not found: {_P}",
            rf"(?:^|[\s:]){_P}: command not found(?!: \S)",
            rf"^(?:fish: )?Unknown command: {_P}",
            rf"'{_P}' is not recognized as",
            rf"The term '{_P}' is not recognized",
            rf"exec: \"{_P}\": executable file not found",
            rf"(?:^|[\s/])(?:ba|da|z|a)?sh: (?:\d{{1,9}}: |line \d{{1,9}}: )?(?:exec: )?{_P}: not found",
            rf"\benv: [‘'\"]?{_P}[’'\"]?: No such file",
            rf"failed to run command [‘'\"]{_P}[’'\"]: No such file",
            rf"^(?:xargs|nohup|sudo|time|nice|make(?:\[\d{{1,3}}\])?|gmake|exec|strace|watch): {_P}: (?:No such file or directory|[Cc]ommand not found)",
            rf"\bspawn {_P} ENOENT",
            rf"\bCommand '{_P}' not found, but",
            rf"The program '{_P}' is currently not installed",
            rf"\bunable to execute '{_P}'",
            rf"\bcommand '{_P}' failed: No such file",
            rf"\b{_P} failed: No such file or directory",
            rf"\blinker `?{_P}`? not found",
            rf"\b(?:failed to find tool|unable to find|could not find|couldn't find) [\"'`]?{_P}[\"'`]? (?:executable|binary|in (?:your |the )?\$?PATH)",
            rf"\bno '?{_P}'? command could be found in your PATH",
            rf"\bThe {_P} command could not be found",
        )
    ),
    re.MULTILINE,
)
_PROGRAM_HINTS = ("not found", "not recognized", "No such file", "nknown command", "ENOENT", "not installed", "unable to execute", "ould not find", "o find", "could not be found", "be found in")  # fmt: skip
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
"""Sentences that name a program in other words."""

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

_CREDENTIAL = {
    "credential": ("bad credentials", "unable to locate credentials", "no credentials"),
    "token": (
        "expired token", "expiredtoken", "token has expired", "token is expired", "token expired", "token is invalid",
        "token has been revoked", "token was revoked", "token invalid", "invalid token", "invalidclienttokenid",
    ),
    "api": (
        "invalid api key", "invalid api-key", "incorrect api key", "missing api key", "api key not found", "no api key",
    ),
    "auth": (
        "authentication failed", "authentication required", "requires authentication", "must authenticate",
        "gh auth login", "gcloud auth login", "eneedauth", "unauthenticated",
        "support for password authentication was removed",
    ),
    "log": (
        "not logged in", "must be logged in to the server", "az login", "npm login", "docker login",
    ),
    **{
        phrase: (phrase,)
        for phrase in ("could not read username", "invalid_grant", "code e401", "permission denied (publickey")
    },
}  # fmt: skip
"""What refusals say, by a part that several phrases share, so that one search excludes all of them."""

_401 = re.compile(
    r"\b401\b[^\n]{0,40}?(?:unauthori[sz]ed|credential|token|auth)"
    r"|\b(?:https?(?:/\d(?:\.\d)?)?|error:?|status(?: code)?:?|code:?|returned|unauthori[sz]ed:?)[ :=(]{1,3}401\b"
)
_CHECKS = re.compile(
    r"\b(?:test|tests|spec|pytest|jest|vitest|mocha|rspec|phpunit|unittest|ctest|nosetests|tox|nox|playwright)\b"
)
"""Requests that run tests: a refused login in their output may well be what they test."""

_AWAY = {
    "connect": (
        "connection refused", "failed to connect", "couldn't connect", "cannot connect to the docker daemon",
        "connection reset", "err_connection_refused", "could not connect to redis", "can't connect to",
    ),
    "resol": (
        "could not resolve", "couldn't resolve", "name resolution", "failure resolving", "failed to resolve",
    ),
    "host": (
        "no such host", "could not translate host name", "no route to host",
        "did you specify the right host or port",
    ),
    "network": ("network is unreachable", "network unreachable", "mongonetworkerror"),
    "err_": ("err_name_not_resolved", "err_internet_disconnected"),
    **{
        phrase: (phrase,)
        for phrase in (
            "econnrefused", "enotfound", "eai_again", "name or service not known", "nodename nor servname", "dial tcp",
        )
    },
}  # fmt: skip
"""What failures to reach a host say, by a part that several phrases share."""

_DOCKER = "docker daemon"
_TIMED_OUT = ("timed out", "etimedout", "socket timeout", "read timeout", "connect timeout")
PACKAGE_MANAGERS = {
    **{name: name for name in """apt apk yum dnf zypper pacman brew snap npm pnpm yarn bun pip uv poetry pipenv pdm conda
    mamba gem bundle composer choco winget nuget""".split()},
    "apt-get": "apt", "pip3": "pip",
}  # fmt: skip
"""Programs that do little but load packages, and the one name of each."""

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
_OFFLINE = re.compile(r"\s(?:--?version|-[vV]|version|--?help|-h|help|config|completion)(?:\s|\Z)")
"""Calls of network programs that talk to nobody."""

_LOCAL = re.compile(r"\s(?:list|ls|show|freeze|cache|run|test|t|exec|env|info|start|build|dev)(?:\s|\Z)")
"""Calls of package managers that load nothing, or run programs of the project."""

_QUIET = frozenset(
    """grep egrep fgrep rg ag cat bat head tail less more echo printf sed awk find fd ls tree wc sort uniq cut tr jq yq diff cp mv
    rm mkdir touch vi vim nano export cd tee""".split()
)
"""Programs that talk to no host, whatever hosts their words name."""

_PROSE = frozenset(
    """to the and of a an is it in on for this that i we you he they now next let so if no yes ok okay please done finally first
    also here there thought action observation output answer note result""".split()
)
_DEFAULTS = {program: row.default for row in SERVICES if row.login and row.default for program in row.programs}


def missing_in(
    message: str, *, tool_name: str, command_word: str, request: str, service: str, severity: Severity | None
) -> Missing | None:
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
    """
    text = message if len(message) <= HEAD_CHARS + TAIL_CHARS else message[:HEAD_CHARS] + "\n" + message[-TAIL_CHARS:]
    return _missing_in(text, tool_name, command_word, request[:MAX_REQUEST_CHARS], service, severity)


@lru_cache(maxsize=512)
def _missing_in(
    text: str, tool_name: str, command_word: str, request: str, service: str, severity: Severity | None
) -> Missing | None:
    """Same for a text that is short enough; cached, since an agent that is stuck repeats its failures."""
    found = _named_in(text, tool_name, command_word, request, service, severity)
    return found if found is not None and redact_text(found.name) == found.name else None


def _named_in(
    text: str, tool_name: str, command_word: str, request: str, service: str, severity: Severity | None
) -> Missing | None:
    if program := _program_in(text):
        return Missing("program", program)
    if severity is None:
        return None
    if module := _module_in(text):
        return Missing("module", module)
    low = text.lower()
    if _is_refused(low, severity) and not (command_word and _CHECKS.search(request.lower())):
        return Missing("credential", _refused_by(low, request, command_word) or service or command_word or tool_name)
    if _says(low, _AWAY):
        manager = _manager(command_word, request)
        host = _DOCKER if "docker daemon" in low else host_in_message(low) or host_of_url(request)
        if manager and not (host and host in request):
            return Missing("network", manager)
        return Missing("host", host) if host else None
    if severity is Severity.TIMEOUT or any(map(low.__contains__, _TIMED_OUT)):
        manager = _manager(command_word, request)
        return Missing("network", manager) if manager else None
    return None


def _says(text: str, phrases_by_part: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether a text holds one of the phrases, given by a part that they share."""
    return any(
        any(map(text.__contains__, phrases_by_part[part])) for part in filter(text.__contains__, phrases_by_part)
    )


def restored_by(missing: Missing, *, programs: Collection[str], request: str, tool: str) -> bool:
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
    if any(map(text.__contains__, _PROGRAM_HINTS)):
        for found in _PROGRAM.finditer(text):
            name: str = next(filter(None, found.groups()))
            if name != "cd" and not name[:1].isupper() and name not in _PROSE and not name.isdecimal():
                return name
    return next((name for sentence, name in _COMPILERS if sentence in text), "")


def _module_in(text: str) -> str:
    if _BROWSER in text and "Executable doesn't exist" in text:
        return _BROWSER
    found = _MODULE.search(text) if any(map(text.__contains__, _MODULE_HINTS)) else None
    return next((name for name in found.groups() if name), "") if found else ""


def _is_refused(text: str, severity: Severity) -> bool:
    if _says(text, _CREDENTIAL):
        return True
    return "401" in text and (severity is Severity.PERMISSION or _401.search(text) is not None)


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

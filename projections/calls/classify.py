"""Failure classification: how bad is this failure, and is it one at all? (docs/classification.md).

First match wins: the reporter's own severity, a dangerous command, the status, HTTP status, exit code, error type or
code, what the message names (an exception, a status, a phrase). What is left has answered, unless the tool broke.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from ...schemas.vocabulary import FailureSeverity
from .error_words import MAX_TYPE_CHARS, by_exit_code, exit_code_of, normal_exit_code

MAX_MESSAGE_CHARS = 2000  # Number of characters of a message that are searched for phrases

# Kind of program that a tool runs for its caller: command lines, programs, or none. Their output is no message.
Runs = Literal["", "shell", "code"]

_BY_HTTP_STATUS = {
    401: FailureSeverity.PERMISSION,
    403: FailureSeverity.PERMISSION,
    404: FailureSeverity.NOT_FOUND,
    410: FailureSeverity.NOT_FOUND,
    408: FailureSeverity.TIMEOUT,
    504: FailureSeverity.TIMEOUT,
    409: FailureSeverity.TRANSIENT,
    425: FailureSeverity.TRANSIENT,
    429: FailureSeverity.TRANSIENT,
    400: FailureSeverity.INVALID_INPUT,
    413: FailureSeverity.INVALID_INPUT,
    422: FailureSeverity.INVALID_INPUT,
}

# Error types, error codes and signals, compared in lower case without separators; suffixes cover class names.
_BY_TYPE_EXACT: dict[str, FailureSeverity] = {
    **dict.fromkeys(
        "etimedout esockettimedout deadlineexceeded querycanceled sigalrm sigxcpu".split(), FailureSeverity.TIMEOUT
    ),
    **dict.fromkeys(
        """econnreset econnrefused econnaborted enotfound eaiagain epipe enetunreach ehostunreach enetdown eagain
        ebusy enotconn brokenpipeerror connectionerror connectionreseterror connectionrefusederror
        connectionabortederror gaierror ratelimiterror ratelimitexceeded ratelimited ratelimiting ratelimit
        toomanyrequests throttlingexception throttled slowdown unavailable serviceunavailable
        serviceunavailableerror remotedisconnected incompleteread apiconnectionerror overloadederror
        resourceexhausted insufficientquota quotaexceeded requestlimitexceeded connectionclosed networkerror
        interfaceerror remoteprotocolerror protocolerror urlerror clientoserror serverdisconnectederror
        nameresolutionerror maxretryerror newconnectionerror chunkedencodingerror connectionclosederror
        connectionclosedexception unknownhostexception socketexception noroutetohostexception""".split(),
        FailureSeverity.TRANSIENT,
    ),
    **dict.fromkeys(
        """permissionerror eacces eperm unauthorized unauthorised forbidden accessdenied accessdeniedexception
        permissiondenied authenticationerror permissiondeniederror unauthenticated authorizationerror notauthorized
        notauthorised invalidapikey invalidtoken expiredtoken authenticationfailed authorizationfailed
        unauthorizedaccessexception insufficientpermissions insufficientprivilege invalidauth notauthed tokenexpired
        tokenrevoked invalidgrant expiredtokenexception unrecognizedclientexception invalidclienttokenid signaturedoesnotmatch
        nocredentialserror""".split(),
        FailureSeverity.PERMISSION,
    ),
    **dict.fromkeys(
        """filenotfounderror filenotfoundexception enoent notfound notfounderror notadirectoryerror enotdir
        modulenotfounderror nosuchkey nosuchbucket nosuchfileexception nosuchelementexception doesnotexist
        unimplemented 32601""".split(),
        FailureSeverity.NOT_FOUND,
    ),
    **dict.fromkeys(
        """validationerror typeerror valueerror keyerror invalidargument invalidparams badrequest badrequesterror
        einval invalidinput argumenterror invalidrequesterror invalidrequest invalidparameter missingparameter
        isadirectoryerror eisdir lookuperror indexerror inputvalidationerror inputvalidation zoderror outofrange argumentnullexception
        argumentoutofrangeexception validationexception 32602 32600 32700""".split(),
        FailureSeverity.INVALID_INPUT,
    ),
    **dict.fromkeys(
        # Answers under the name of an exception: the tool, a database or a program ran and said no.
        """outputvalidationerror responsevalidationerror schemaerror stringnotfound stringnotfounderror textnotfound
        oldstrnotfound nomatch nomatchfound toolerror toolexception toolexecutionerror calledprocesserror
        processexecutionerror nonzeroexitcode commandfailed commanderror fileexistserror eexist alreadyexists
        alreadyexistserror failedprecondition preconditionfailed error usererror modelretry clienterror
        shellerror shellcommanderror execaerror execexception exiterror nonzeroexit executionerror executionfailed
        commandexecutionerror commandfailederror subprocesserror processerror elementclickinterceptedexception
        elementnotinteractableexception staleelementreferenceexception uniqueviolation foreignkeyviolation
        mongoservererror
        sqlerror sqlexception sqlsyntaxerrorexception sqliteerror psqlexception programmingerror operationalerror
        databaseerror dataerror integrityerror notsupportederror queryerror syntaxerror""".split(),
        FailureSeverity.VALIDATION,
    ),
    **dict.fromkeys(
        "internal internalerror internalservererror unknownerror 32603".split(), FailureSeverity.SERVER_ERROR
    ),
    **dict.fromkeys("enospc edquot eio enomem emfile enfile".split(), FailureSeverity.SERVER_ERROR),
    **dict.fromkeys(
        """memoryerror outofmemoryerror oom oomkilled segmentationfault sigsegv sigkill sigabrt sigbus sigill sigfpe
        sigtrap sigsys crash processcrashed systemerror recursionerror stackoverflowerror brokenprocesspool
        accessviolation""".split(),
        FailureSeverity.CRASH,
    ),
    **dict.fromkeys(
        """checksumerror checksummismatch unicodedecodeerror unicodeerror jsondecodeerror decodeerror badzipfile
        badgzipfile corruption datacorruption dataloss zliberror eoferror""".split(),
        FailureSeverity.CORRUPTION,
    ),
}
_SUFFIXES = (
    (("validationerror",), FailureSeverity.INVALID_INPUT),
    (("notfound", "notfounderror", "notfoundexception"), FailureSeverity.NOT_FOUND),
    (("ratelimiterror", "ratelimitexceeded", "throttlingexception", "throttlederror"), FailureSeverity.TRANSIENT),
    (("connectionerror", "connecterror", "connectexception", "connectionexception"), FailureSeverity.TRANSIENT),
    (("permissiondenied", "permissiondeniederror", "accessdenied", "accessdeniederror"), FailureSeverity.PERMISSION),
    (("unauthorizederror", "forbiddenerror", "authenticationerror"), FailureSeverity.PERMISSION),
    (("outofmemoryerror", "outofmemoryexception"), FailureSeverity.CRASH),
    (("argumentexception", "formatexception"), FailureSeverity.INVALID_INPUT),
    (("invalidrequesterror",), FailureSeverity.INVALID_INPUT),
    (("sqlexception", "sqlerror"), FailureSeverity.VALIDATION),
    (("requesterror", "responseerror", "queryerror", "graphqlerror", "clienterror"), FailureSeverity.VALIDATION),
    (("conflicterror", "duplicateerror", "existserror", "existsexception", "carderror"), FailureSeverity.VALIDATION),
)
# Names of errors that report only that a tool or command failed
_GENERIC = frozenset(
    """error usererror toolerror toolexception toolexecutionerror calledprocesserror processexecutionerror
    nonzeroexitcode nonzeroexit commandfailed commanderror commandfailederror commandexecutionerror shellerror
    shellcommanderror execaerror execexception exiterror executionerror executionfailed subprocesserror processerror
    clienterror""".split()
)

TOOL_ERROR = "ToolError"  # Name of a failure that the tool of an MCP server reports by `isError`

# Classes that clients of MCP servers raise for such a result
_OF_TOOLS = frozenset({TOOL_ERROR, "ToolException", "ToolExecutionError"})

# Classes of languages and of HTTP clients, by which a tool breaks; any other unknown class is the tool's own
_OF_RUNTIMES = frozenset(
    """exception baseexception exceptiongroup runtimeerror notimplementederror assertionerror attributeerror nameerror
    unboundlocalerror arithmeticerror zerodivisionerror overflowerror floatingpointerror referenceerror buffererror
    stopiteration stopasynciteration oserror ioerror environmenterror importerror rangeerror evalerror urierror
    aggregateerror nullpointerexception nullreferenceexception illegalstateexception invalidoperationexception
    runtimeexception systemexception classcastexception invalidcastexception indexoutofboundsexception
    arrayindexoutofboundsexception ioexception unsupportedoperationexception concurrentmodificationexception
    standarderror nomethoderror httperror transporterror requestexception readerror writeerror closeerror poolerror
    brokenexecutor apierror httpexception""".split()
)

ANSWER = "answer"  # Word of rules and registrations for a failure that is a tool's answer

_NOT_LETTERS = re.compile(r"[^a-z0-9]+")
_TEXT_FIELDS = ("message", "stderr", "content", "body", "output", "stdout", "text")

# In the order of precedence: text that each phrase contains, as a fast pre-check; and the phrases
_PHRASES: dict[FailureSeverity, tuple[str, str]] = {
    FailureSeverity.VALIDATION: (
        "to replace|find |locate |match|old_str|exact text|oldstr|occurrence|hunk|not enough|insufficient|duplicate |violates |constraint failed|already exists|syntax error",
        r"(?:find|locate|match) (?:(?:the|any|a|an|exact|expected|matching|original|old|specified|search) ){0,3}(?:strings?|text|match(?:es)?|lines?|code|context|blocks?|snippet|hunks?)|not match(?: exactly)?|similar match|(?:expected|found) (?:multiple|\d+) (?:occurrences?|matches)|multiple (?:occurrences|matches)|duplicate (?:key|entry)|violates (?:\S+ ){0,3}constraint|constraint failed|already exists|syntax error|(?:text|string|old_?str\w*)(?: to (?:replace|find))?(?: was| is)? not found|exact text|no match(?:es)? found|hunk (?:failed|not found)|not enough|insufficient (?!permission|privilege|scope|quota)\w+",
    ),
    FailureSeverity.NOT_FOUND: (
        "not found|not exist|doesn't exist|no such|not find|not be found|to find|to locate|n't find",
        r"not found|does not exist|do not exist|doesn't exist|no such (?:file|directory|key|table|column)|(?:cannot|could not|can not|unable to|couldn't|can't) (?:find|locate)|could not be found",
    ),
    FailureSeverity.PERMISSION: (
        "denied|uthori|forbidden|not permitted|authenticat|api key|credentials|permissions|privilege|insufficient scope|token",
        r"permission denied|access (?:is |was )?denied|unauthori[sz]ed|not authori[sz]ed|forbidden|not permitted|authentication (?:failed|required)|not authenticated|unauthenticated|(?:invalid|incorrect|expired|bad) (?:api[ _]key|credentials|(?:access |auth )?token)|token (?:has |is |was )?(?:expired|revoked)|insufficient (?:permissions?|privileges?|scope)",
    ),
    FailureSeverity.TIMEOUT: (
        "timeout|time out|time-out|timed out|deadline exceeded|etimedout",
        r"time[ -]?out(?!\()|timed out|deadline exceeded|etimedout",
    ),
    FailureSeverity.TRANSIENT: (
        "rate limit|rate-limit|rate_limit|throttl|too many requests|quota|connection |connect to|temporarily unavailable|overloaded|econn|enotfound|eai_again|socket hang up|broken pipe|unreachable|name resolution|service unavailable|resource_exhausted|gone away|try again later|network error|fetch failed|err_|no such host|resolve |service not known|getaddrinfo|connect error|disconnected|ratelimited",
        r"rate[ _-]?limit(?:ed|ing|s|_exceeded)?|throttl(?:ed|ing)|too many requests|(?<!disk )quota|insufficient_quota|quota_exceeded|connection (?:was |is |has been )?(?:reset|refused|aborted|closed|lost|terminated|error)|lost connection|closed the connection|(?:can't|cannot|could not|couldn't|unable to|failed to) connect to|temporarily unavailable|overloaded|econn(?:reset|refused|aborted)|enotfound|eai_again|socket hang up|broken pipe|(?:network|host) is unreachable|temporary failure in name resolution|service unavailable|resource_exhausted|has gone away|try again later|network error|fetch failed|err_(?:connection_\w+|name_not_resolved|internet_disconnected|network_\w+)|no such host|(?:could not|couldn't|cannot|failed to|unable to) resolve (?:host|hostname|address|name|the host|')|name or service not known|getaddrinfo failed|connect(?:ion)? (?:error|issue|problem)s?|server disconnected|ratelimited",
    ),
    FailureSeverity.CRASH: (
        "signal: |segfault|segmentation fault|core dumped|crash|out of memory|oom|killed|panicked|died with <signals",
        r"signal: (?:killed|aborted|segmentation fault)|died with <signals\.sig(?:segv|kill|abrt|bus|ill|fpe|trap|sys)|segfault|segmentation fault|core dumped|crash(?:ed)?|out of memory|oom[- ]?killed|killed by signal|was killed|panicked",
    ),
    FailureSeverity.CORRUPTION: (
        "mismatch|corrupt|malformed archive|image is malformed",
        r"checksum mismatch|corrupt(?:ed|ion)?|(?:hash|digest) mismatch|malformed archive|disk image is malformed",
    ),
    FailureSeverity.INVALID_INPUT: (
        "invalid|required|must be|expected|missing|unknown ",
        r"invalid|required|must be|expected|missing|unknown (?:option|argument|parameter)",
    ),
    FailureSeverity.SERVER_ERROR: (
        "internal |bad gateway|server error|unhandled|uncaught|traceback (|is not a function|of undefined|of null|has no attribute|null pointer|no space left|disk quota|unexpected error|exception",
        r"internal (?:server )?(?:error|failure)|bad gateway|server error|unhandled (?:exception|error|rejection)|uncaught (?:exception|\w*error)|traceback \(most recent call last|is not a function|cannot read propert(?:y|ies) of (?:undefined|null)|object has no attribute|null pointer|no space left on device|disk quota exceeded|unexpected error|exception (?:occurred|was thrown|in thread)",
    ),
}  # fmt: skip
_Search = tuple[FailureSeverity, tuple[str, ...], Callable[[str], re.Match[str] | None]]
_SEARCHES: tuple[_Search, ...] = tuple(
    (severity, tuple(needles.split("|")), re.compile(rf"\b(?:{words})\b").search)
    for severity, (needles, words) in _PHRASES.items()
)
# Quoted code and paths: the subject of a message, not its statement
_NOT_WORDS = re.compile(r"`[^`]*`(?:[^\s/`]*/\S*)?|(?<![^\s/])[^\s/]*/\S*")

_STATUS = re.compile(
    r"(?:\b(?:client|server) error '|<(?:title|h1)>\s*|\bindicate success: )([45]\d\d)\b"
    r"|\b(?:https?(?:/\d(?:\.\d)?)?(?: (?:status|error|code))*|status(?:[ _]?code)?|responded with|error code|error|code)"
    r"(?: of| was| is)?[ :=(]{1,3}([45]\d\d)\b|(?:\A\W{0,3}|: )([45]\d\d)\b(?=[ :,-]{1,3}(?:bad|un|forbidden|not|request|resource|conflict|gone|too many|internal|service|gateway"
    r"|client error|server error|error)|\W*\Z)"
)
_EXCEPTION = re.compile(
    r"(?:\A|\n|: )[^\S\n]*(?:(?:Uncaught |Unhandled )?(?:Error|Exception)(?: in thread \S+)?:? )?"
    r"((?:\w{1,60}\.){0,8}[A-Z]\w{2,60}(?:Error|Exception|Fault))\b(?=\s*:|\s*\Z|\n| \()"
)
_CLASS = re.compile(r"(?:.*[.:])?(?:[A-Z]\w*(?:Error|Exception|Fault|Failure|Panic)|StopIteration|Exception)\Z")
# Messages of a browser that waited for a missing element of the page
_WAITED = re.compile(
    r"\bwaiting for (?:the )?(?:locator|selector|element|getby\w+|get_by_\w+|xpath|text|function)\b|pointer events"
)

_CODE_IN_TEXT = re.compile(r"\brpc error: code = (\w{1,60})|\bAn error occurred \((\w{1,60})\)")
_CODE_IN_FRONT = re.compile(r"(?:Error: )?([A-Z][A-Z_]{3,30}): ")
_ONE_WORD = re.compile(r"\w[\w.-]{2,59}\Z")
_FETCH_FAILED = re.compile(r"(?:typeerror: )?(?:fetch failed|failed to fetch|load failed|network ?error)\b")
_ONE_LINE_CHARS = 120
# Line that reports that nothing ran: an answer in place of a command's output
_BROKEN_LINE = re.compile(
    r"(?:error: )*(?:(?:https? )?(?:(?:error|status):? )?[45]\d\d[ :,-]{1,3}(?:un|forbidden|internal|bad gateway|service|gateway).*+|internal (?:server )?error|bad gateway|service unavailable"
    r"|gateway time-?out|(?:context )?deadline exceeded|panic: .*+|fatal error: runtime.*+|runtime error: .*+)\W*\Z"
)

_PANIC = re.compile(
    r"\A(?:panic: |runtime error: |fatal error: (?:runtime|all goroutines|stack overflow|out of memory)|thread '[^'\n]*' panicked)"
)
_EXIT = re.compile(
    r"(?:\A\W{0,3}(?:error: )?|\n\W{0,3}(?=[^\n]*\Z))"
    r"(?:<shellid: \d+ completed with |(?:the )?(?:command|process|script) )?(?:exit(?:ed)?|failed|completed)?(?: with)?"
    r" ?(?:non-zero )?(?:exit )?(?:code|status):? (-?\d{1,10})(?=[\s.\])>:]|\Z)"
)
# Line by which an agent's client reports how a command ended
_EXIT_LINE = re.compile(
    r"(?:\A|\n)\W{0,3}(?:(?:the )?(?:command|process|script) )?(?:completed|finished|exited|failed)?(?: with)? ?"
    r"exit(?:ed with)? (?:code|status):? (-?\d{1,10})[.\])>]{0,2}[ \t]*(?=\n|\Z)"
)

_CLIENT_LINES_CHARS = 400
_LAST_LINES = 3
_TAIL_CHARS = 600
_COMMAND_DENIED = re.compile(
    r"\b(?:permission denied|operation not permitted|access (?:is )?denied|authentication failed|not authori[sz]ed"
    r"|eacces|eperm)\b"
)
# Commands that walk whole trees: they report unreadable files and continue
_WALKERS = frozenset("find fd rg grep egrep fgrep zgrep du tree".split())

_CUT_OFF = re.compile(
    r"(?:\A|\n)\W{0,3}(?:error: )?(?:the )?(?:command|process|execution|script|shell|program|code)(?: execution)? "
    r"(?:has |was )?timed out\b[^\n]{0,80}(?=\n|\Z)"
)
_SQL_TYPES = ("sql", "programmingerror", "operationalerror", "databaseerror", "integrityerror", "queryerror")
_PROGRAM_ENDS = frozenset({FailureSeverity.TIMEOUT, FailureSeverity.CRASH})
# Severities other than `validation` that a database's error may have
_SQL_HEALTH = frozenset(
    {FailureSeverity.TIMEOUT, FailureSeverity.TRANSIENT, FailureSeverity.PERMISSION, FailureSeverity.NOT_FOUND}
)

_SQL_SEARCHES = tuple(search for search in _SEARCHES if search[0] in _SQL_HEALTH)


_SECURITY = re.compile(
    r"\b(?:security (?:violation|policy|concern|risk|alert|error)|malicious|injection|exploit|privilege escalation)\b"
)


class RawFailure(NamedTuple):
    """Failure to classify, from an event's error or from a raw result."""

    type: str = ""  # exception class or error category, as given
    message: str = ""  # free text; searched, never stored
    http_status: int | None = None  # HTTP status, None if there was none
    code: str = ""  # error code or exit code as text, empty if none


@lru_cache(maxsize=4096)
def by_type(name: str) -> FailureSeverity | None:
    """Return the severity of an error type or code; None if it is unknown."""
    plain = _plain(name)
    found = _BY_TYPE_EXACT.get(plain)
    if found is None and plain.isdigit() and len(plain) == 3:
        return by_http_status(int(plain))
    if found is None and plain.startswith("http"):
        status = re.search(r"[45]\d\d", plain)
        return by_http_status(int(status.group())) if status else None
    if found is None and "timeout" in plain:
        return FailureSeverity.TIMEOUT
    if found is None:
        return next((severity for ends, severity in _SUFFIXES if plain.endswith(ends)), None)
    return found


def _plain(name: str) -> str:
    return _NOT_LETTERS.sub("", name.rsplit(".", 1)[-1].lower())


@lru_cache(maxsize=2048)
def is_exception(name: str) -> bool:
    """Whether a reported error type is the name of an exception class."""
    return len(name) <= MAX_TYPE_CHARS and _CLASS.match(name) is not None


@lru_cache(maxsize=2048)
def _speaks_sql(name: str) -> bool:
    plain = _NOT_LETTERS.sub("", name.lower())
    return any(word in plain for word in _SQL_TYPES)


def by_http_status(status: int) -> FailureSeverity | None:
    """Return the severity of an HTTP status; None below 400."""
    known = _BY_HTTP_STATUS.get(status)
    if known is not None or status < 400:
        return known
    return FailureSeverity.SERVER_ERROR if status >= 500 else FailureSeverity.VALIDATION


def by_message(message: str, searches: tuple[_Search, ...] = _SEARCHES) -> FailureSeverity | None:
    """Return the severity that a message's phrases suggest, matched on word boundaries, by precedence."""
    text = message[:MAX_MESSAGE_CHARS]
    if "/" in text or "`" in text:
        text = _NOT_WORDS.sub(" ", text)
    text = text.lower()
    for severity, needles, search in searches:
        for needle in needles:
            if needle in text:
                if search(text):
                    return severity
                break
    return None


def speaks_of_security(message: str) -> bool:
    """Whether a message mentions a security concern; by itself that does not classify the failure."""
    return _SECURITY.search(message[:MAX_MESSAGE_CHARS].lower()) is not None


def classify(
    failure: RawFailure,
    *,
    status: str,
    dangerous: bool,
    override: FailureSeverity | None = None,
    runs: Runs = "",
    command: str = "",
) -> FailureSeverity:
    """Severity of a failed call.

    Args:
        failure: what is known of it.
        status: the event's.
        dangerous: its command matched a security rule.
        override: severity that the reporter gave.
        runs: what the tool runs for its caller.
        command: command word of a shell call.
    """
    if override is not None:
        return override
    if dangerous:
        return FailureSeverity.SECURITY
    if status == "timeout":
        return FailureSeverity.TIMEOUT
    if failure.http_status is not None and (found := by_http_status(failure.http_status)) is not None:
        return found
    names = [name for name in (failure.type, failure.code) if 0 < len(name) <= MAX_TYPE_CHARS]
    exit_code = exit_code_in(failure, runs)
    by_names = [found for name in names if not exit_code and (found := by_type(name)) is not None]
    if exit_code and failure.type and not exit_code_of(failure.type) and len(failure.type) <= MAX_TYPE_CHARS:
        by_names = [found for found in (by_type(failure.type),) if found is not None]
    if runs == "code" and not (failure.message.startswith("MCP error -32") or _says_that_nothing_ran(failure.message)):
        return _of_program(failure, by_names, exit_code)
    for found in by_names:
        if found is not FailureSeverity.VALIDATION:
            return _with_message(found, failure)
    if exit_code or runs == "shell":
        found = _of_command(failure, exit_code, command)
        if found is not None:
            return found
    return _of_message(failure, names, answered=bool(by_names))


def _with_message(found: FailureSeverity, failure: RawFailure) -> FailureSeverity:
    """Return the severity that a name suggests if the message is not specific."""
    if not failure.message:
        return found
    text = failure.message[:MAX_MESSAGE_CHARS].lower()
    match found:
        case FailureSeverity.TIMEOUT if _WAITED.search(text):
            return FailureSeverity.VALIDATION
        case FailureSeverity.TRANSIENT if "timeout of " in text and by_type(failure.code) is found:
            return FailureSeverity.TIMEOUT  # ECONNABORTED is how Axios names its own time limit
        case FailureSeverity.INVALID_INPUT if _FETCH_FAILED.match(text):
            return FailureSeverity.TRANSIENT  # fetch() raises a TypeError for a lost connection
    return found


def is_plain_answer(failure: RawFailure) -> bool:
    """Whether a `validation` failure names no fault: the tool ran and declined, which is not by itself an error."""
    if failure.http_status is not None:
        return False
    names = [name for name in (failure.type, failure.code) if 0 < len(name) <= MAX_TYPE_CHARS]
    message = failure.message[:MAX_MESSAGE_CHARS]
    if "Error" in message or "Exception" in message:
        names += _EXCEPTION.findall(message)[:1]
    return all(by_type(name) is None or _is_generic(name) for name in names)


def is_of_own_class(failure: RawFailure) -> bool:
    """Whether a failure is an exception of a class that the tool defines itself, and nothing else tells its kind."""
    message = failure.message[:MAX_MESSAGE_CHARS]
    name = failure.type
    if not name and ("Error" in message or "Exception" in message or "Fault" in message):
        found = _EXCEPTION.findall(message)
        name = found[-1 if "Traceback" in message else 0] if found else ""
    if not name or failure.http_status is not None or not is_exception(name) or len(failure.code) > MAX_TYPE_CHARS:
        return False
    if by_type(name) is not None or _plain(name) in _OF_RUNTIMES or by_type(failure.code) is not None:
        return False
    return _named_in(message) is None and _status_in(message) is None and by_message(message) is None


def declared(failure: RawFailure, exit_code: str, table: Mapping[str, str]) -> str:
    """Return the name by which a table of a tool's failures has one: type, code, HTTP status or exit code; or empty."""
    status = "" if failure.http_status is None else str(failure.http_status)
    names = (failure.type, failure.type.rpartition(".")[2], failure.code, status, exit_code)
    return next((name for name in names if name and name in table), "")


def reported_by_tool(failure: RawFailure) -> RawFailure:
    """Return the failure in the result of an MCP server's tool, under the name that clients raise it by."""
    code = failure.type if exit_code_of(failure.type) else failure.code or failure.type
    return failure._replace(type=TOOL_ERROR, code=code)


def is_of_tool(name: str) -> bool:
    """Whether an error type means that the tool itself reported the failure, so its server is reachable."""
    return name.rsplit(".", 1)[-1] in _OF_TOOLS


@lru_cache(maxsize=2048)
def _is_generic(name: str) -> bool:
    return _plain(name) in _GENERIC


def exit_code_in(failure: RawFailure, runs: Runs) -> str:
    """Return the exit code of a failure as text; empty without one."""
    found = exit_code_of(failure.type) or exit_code_of(failure.code)
    if found:
        return found
    code = failure.code
    if code and len(code) <= 11 and code.lstrip("-").isdecimal():
        normal = normal_exit_code(int(code))
        if (runs == "shell" and not 400 <= int(normal) <= 599) or (
            int(normal) <= 255 and by_exit_code(int(normal)) is not FailureSeverity.VALIDATION
        ):
            return normal
    if runs == "shell" and ("ode" in failure.message or "tatus" in failure.message):
        head, tail = failure.message[:_CLIENT_LINES_CHARS], failure.message[-_CLIENT_LINES_CHARS:]
        told = _EXIT_LINE.search((head + "\n" + tail).lower())
        if told:
            return normal_exit_code(int(told.group(1)))
    head, tail = failure.message[:80], failure.message[-80:]
    if "code" not in head and "code" not in tail and "status" not in head and "status" not in tail:
        return ""
    told = _EXIT.search((head + "\n" + tail.rstrip()).lower())
    return normal_exit_code(int(told.group(1))) if told else ""


def _of_program(failure: RawFailure, by_names: list[FailureSeverity], exit_code: str) -> FailureSeverity:
    """Classify the failure of a program: its exceptions are answers, unless it was cut off or killed."""
    if exit_code and (found := by_exit_code(int(exit_code))) in _PROGRAM_ENDS:
        return found
    ended = next((found for found in by_names if found in _PROGRAM_ENDS), None)
    if ended is not None:
        return ended
    if _CUT_OFF.search(failure.message[:MAX_MESSAGE_CHARS].lower()):
        return FailureSeverity.TIMEOUT
    return (
        FailureSeverity.VALIDATION if any((failure.type, failure.message, exit_code)) else FailureSeverity.SERVER_ERROR
    )


def _of_command(failure: RawFailure, exit_code: str, command: str) -> FailureSeverity | None:
    """Classify a command by its exit code and a refusal in its last lines; None if no exit code is reported."""
    found = by_exit_code(int(exit_code), command) if exit_code else FailureSeverity.VALIDATION
    if found is not FailureSeverity.VALIDATION:
        return found
    if failure.message:
        if not exit_code and _says_that_nothing_ran(failure.message):
            return None
        tail = "\n".join(failure.message[-_TAIL_CHARS:].rstrip().lower().split("\n")[-_LAST_LINES:])
        if _COMMAND_DENIED.search(tail) and command not in _WALKERS:
            return FailureSeverity.PERMISSION
        if not exit_code and tail.endswith("command not found"):
            return FailureSeverity.NOT_FOUND
        if (not exit_code or int(exit_code) > 125) and _CUT_OFF.search(failure.message[:MAX_MESSAGE_CHARS].lower()):
            return FailureSeverity.TIMEOUT
    elif not exit_code and not failure.type:
        return None
    return None if not exit_code and is_exception(failure.type[:MAX_TYPE_CHARS]) else FailureSeverity.VALIDATION


def _says_that_nothing_ran(message: str) -> bool:
    return 0 < len(message) <= _ONE_LINE_CHARS and _BROKEN_LINE.match(message.lower()) is not None


def _of_message(failure: RawFailure, names: list[str], *, answered: bool) -> FailureSeverity:
    """Return the severity of an error name in the message; else an answer, unless the tool itself failed."""
    message = failure.message[:MAX_MESSAGE_CHARS]
    if message and any(map(_speaks_sql, names)):
        return by_message(message, _SQL_SEARCHES) or FailureSeverity.VALIDATION
    raised = ""
    found: FailureSeverity | None = None
    if message:
        if "Error" in message or "Exception" in message or "Fault" in message:
            every = _EXCEPTION.findall(message)
            raised = every[-1 if "Traceback" in message else 0] if every else ""
            found = by_type(raised) if raised else None
            if found is not None and found is not FailureSeverity.VALIDATION:
                return _with_message(found, failure)
            answered = found is not None if raised else answered
        found = _named_in(message) or _status_in(message) or by_message(message)
        if _PANIC.match(message):
            found = FailureSeverity.CRASH
    if found is not None:
        return found
    if answered:
        return FailureSeverity.VALIDATION
    broke = bool(raised) or not (names or message) or any(map(is_exception, names))
    return FailureSeverity.SERVER_ERROR if broke else FailureSeverity.VALIDATION


def _named_in(message: str) -> FailureSeverity | None:
    """Severity of the error code that a message names: one word alone or in front, a gRPC status, the code of an AWS service."""
    if _ONE_WORD.match(message):
        return by_type(message)
    if told := _CODE_IN_FRONT.match(message):
        found = by_type(told.group(1))
        return found if found is not FailureSeverity.VALIDATION else None
    if "error: code = " in message or "rror occurred (" in message:
        told = _CODE_IN_TEXT.search(message)
        return by_type(told.group(1) or told.group(2)) if told else None
    return None


def _status_in(message: str) -> FailureSeverity | None:
    """Return the severity of an HTTP status in a message (`HTTP 503`, `status code 429`, `404 Not Found`)."""
    text = message.lower()
    if not (
        text[:1].isdigit()
        or text[:1] == "<"
        or "http" in text
        or "status" in text
        or "code" in text
        or "error" in text
        or ": " in text
    ):
        return None
    told = _STATUS.search(text)
    return by_http_status(int(told.group(1) or told.group(2) or told.group(3))) if told else None


_BEYOND_INT64 = 1 << 63
MAX_DIGITS = 11  # Longest number that is read from text


def _number(value: Any) -> int | None:
    """Return a code or status, which may be given as text (`"500"`); None for anything else."""
    if isinstance(value, str) and len(value) <= MAX_DIGITS and value.removeprefix("-").isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _BEYOND_INT64:
        return None  # neither codes nor statuses, and nothing that a decision or a column could hold
    return int(value)


def failure_in_result(result: Any) -> RawFailure | None:
    """The failure a raw result reports although its call "succeeded"; None if it reports none.

    A truthy `error`, a status of 400 or more, MCP's `isError: true`, or a non-zero exit code; `{"error": null}` is a
    success. So do three usual shapes of answers without data: GraphQL's `errors`, `{"status": "error", "message": …}`,
    and a `code` of 400 or more with a message. A result may wrap it one level deep: in `result` or MCP's
    `structuredContent`, the exit code in `metadata`.
    """
    if not isinstance(result, dict):
        return None
    failure = _reported_by(result)
    for name in _WRAPPERS:
        if failure is None and isinstance(inner := result.get(name), dict):
            exits = {field: inner[field] for field in _EXIT_FIELDS if field in inner}
            failure = _reported_by(inner if name != "metadata" else {**result, **exits})
            if failure is not None and not failure.message:
                failure = failure._replace(message=text_of_result(result))
    return failure


_WRAPPERS = ("metadata", "structuredContent", "result")
_EXIT_FIELDS = ("exit_code", "exitCode", "returncode", "return_code")


def _ended_with(fields: dict[str, Any]) -> int:
    """Return the exit code among the fields of a result; 0 without one."""
    return next((number for name in _EXIT_FIELDS if (number := _number(fields.get(name))) is not None), 0)


def _reported_by(result: dict[str, Any]) -> RawFailure | None:
    error = result.get("error") or _refusal_in(result)
    status = (
        _number(result.get("http_status")) or _number(result.get("status_code")) or _number(result.get("statusCode"))
    )
    exit_code = _ended_with(result)
    is_error = result.get("isError") is True or result.get("is_error") is True
    if not error and not is_error and not exit_code and (status is None or status < 400):
        return None
    details = error if isinstance(error, dict) else {}
    if not details and is_error and isinstance(inner := result.get("structuredContent"), dict):
        nested = inner.get("error")
        details = nested if isinstance(nested, dict) else {"message": nested} if isinstance(nested, str) else inner
        exit_code = exit_code or _ended_with(inner)
    message = details.get("message") or details.get("error") if details else error
    message = _text_of(message) if isinstance(message, str) and message else text_of_result(result)
    kind = result.get("error_type") or details.get("type") or ""
    code = str(details.get("code") or result.get("error_code") or "")
    if exit_code and not code:
        ended = normal_exit_code(exit_code)
        code = f"exit_code_{ended}" if kind else ended
        kind = kind or f"exit_code_{ended}"
    told = details.get("http_status") or details.get("status_code") or details.get("status")
    if status is None and (given := _number(told)) is not None and 400 <= given <= 599:
        status = given
    return RawFailure(
        type=str(kind)[: MAX_TYPE_CHARS + 1],
        message=message,
        http_status=status if status is not None and status >= 400 else None,
        code=code[: MAX_TYPE_CHARS + 1],
    )


def _refusal_in(result: dict[str, Any]) -> Any:
    """The message or error of an answer without data that says by its shape that the request has failed."""
    if result.get("data") or not _REFUSALS.intersection(result):
        return None
    errors = result.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict) and "data" in result:
        return errors[0]
    code = _number(result.get("code")) or 0
    if code < 400 and (result.get("status") not in _FAILED or len(result) > MAX_ENVELOPE):
        return None
    return next((text for name in _MESSAGES if isinstance(text := result.get(name), str) and text), None)


_REFUSALS = frozenset({"errors", "status", "code"})
_MESSAGES = ("message", "msg")
_FAILED = ("error", "fail")  # words of JSend
MAX_ENVELOPE = 4  # With more fields beside its status, an answer is about a thing that has this status


def text_of_result(result: Any) -> str:
    """Return the text of a failed call without an error: its result, or the text in it; empty without any."""
    if isinstance(result, dict):
        return next((text for name in _TEXT_FIELDS if (text := _text_of(result.get(name)))), "")
    return _text_of(result)


def _text_of(value: Any) -> str:
    """Return text, or that of an MCP result's content blocks; of a long one its head and its last lines."""
    if isinstance(value, list):
        value = "\n".join(
            text for block in value[:16] if isinstance(block, dict) and isinstance(text := block.get("text"), str)
        )
    if not isinstance(value, str):
        return ""
    if len(value) <= MAX_MESSAGE_CHARS:
        return value
    return value[: MAX_MESSAGE_CHARS - _TAIL_CHARS] + "\n" + value[1 - _TAIL_CHARS :]

"""Failure keys: which tool, on what kind of target (docs/classification.md).

A key must accumulate: it names the family of targets that fail together (a directory, a domain, an MCP
server, a command word), never the whole arguments, and never a credential. It is made of redacted texts, so that it is
the same for arguments as they are in a guard's process and as its events carry them.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...security.redaction import HIDDEN, redact, redact_text
from . import command_line
from .classify import Runs
from .line_commands import commands_of

MAX_VALUE_CHARS = 120  # Longest parameter value kept in a key; keys are record keys and table keys
MAX_TARGET_CHARS = 4096  # Number of characters of a path or URL that are read; the rest is in no key

SHELL_TOOLS = frozenset(
    """bash cli shell sh terminal exec execute_bash run_shell_command run_command execute_command
    shell_command exec_command container.exec local_shell run_terminal_cmd run_in_terminal runinterminal bash_command
    powershell pwsh cmd runcommand executecommand execute_shell_command execute_shell run_shell shell_exec run_bash
    bash_tool start_process execute_terminal_command developer__shell run_terminal_command execute_bash_command
    launch-process launch_process start-process""".split()
)
WINDOWS_SHELLS = frozenset({"powershell", "pwsh", "cmd"})
CODE_TOOLS = frozenset(
    """python ipython python_repl execute_python run_python execute_code run_code code_interpreter code_execution
    execute_ipython_cell run_ipython jupyter python_interpreter javascript_repl run_javascript execute_javascript
    execute_script evaluate_script browser_evaluate browser_run_code playwright_evaluate puppeteer_evaluate""".split()
)
FILE_TOOLS = frozenset(
    """readfile writefile updatefile removefile read write edit multiedit notebookedit notebookread read_file
    write_file edit_file update_file remove_file create_file delete_file append_file move_file
    str_replace_editor str_replace_based_edit_tool view view_file open_file writenewfile create replace
    search_replace patch""".split()
)
DIRECTORY_TOOLS = frozenset("grep glob ls list_directory list_dir listdirectory search_files find_files".split())
HTTP_TOOLS = frozenset(
    """http_request fetch webfetch web_fetch http http_get http_post curl request browse open_url navigate
    read_url download fetch_webpage fetch_url fetch_page get_url read_webpage visit_webpage visit_page open_page
    browse_url browse_web scrape scrape_url scrape_webpage web_scrape crawl crawl_url url_fetch""".split()
)
_FAMILIES = {
    "shell": SHELL_TOOLS,
    "code": CODE_TOOLS,
    "file": FILE_TOOLS,
    "directory": DIRECTORY_TOOLS,
    "http": HTTP_TOOLS,
}

_PATH_ARGS = ("path", "file_path", "filepath", "filename", "notebook_path", "file")
_DIRECTORY_ARGS = ("path", "directory", "dir", "dir_path", "cwd")
# Control characters as in a terminal, `^J` for a line feed: in a key `\J`
_LETTERS = dict(enumerate("0ABCDEFGHIJKLMNOPQRSTUVWXYZefgru")) | {0x7F: "d"}

_ESCAPES = str.maketrans({"\\": "\\\\", "|": "\\|", "=": "\\="} | {code: f"\\{one}" for code, one in _LETTERS.items()})
_ESCAPED = re.compile(r"\\([|=\\:0A-Zefgrud])")
_UNESCAPED = {one: chr(code) for code, one in _LETTERS.items()}
_CREDENTIALS = re.compile(r"(://)[^/]*@")
_QUERY = re.compile(r"[?#]")
_SEGMENT = re.compile(r"(?=[\w.~-]{1,40}$)(?!(?=.*\d)(?=.*[A-Za-z])[\w-]{20,}$)")
_MIXED = re.compile(r"[0-9A-Z]")
SCOPES = ("tool:", "service:", "tier:", "session:")
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class CallKey(NamedTuple):
    """Key and service of one call."""

    fine: str  # tool and normalised key parameters, e.g. `http_request|domain=api.example.com|path_prefix=v1`.
    service: str  # MCP server or domain, empty if neither
    kind: str  # `mcp`, `domain` or empty: which rule table the service follows


def escape(value: str) -> str:
    """Make a value safe inside a key: one line, `|` and `=` escaped; a long one is cut off, with its digest behind."""
    if len(value) > MAX_VALUE_CHARS:
        value = redact_text(value)  # half of a secret would not be recognised later
        digest = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        value = f"{value[: MAX_VALUE_CHARS - 9]}~{digest}"
    return value.translate(_ESCAPES)


@lru_cache(maxsize=8192)
def _one(tool_name: str, name: str, value: str) -> CallKey:
    """Return a key with a single parameter and no service; cached, as it is the common case."""
    return CallKey(make_key(tool_name, {name: value}), "", "")


@lru_cache(maxsize=1024)
def _of_server(tool_name: str, server: str) -> CallKey:
    """Return the key of an MCP server's tool."""
    server = redact_text(server)
    return CallKey(make_key(tool_name, {"mcp_server": server}), escape(server), "mcp")


def in_quotes(key: str) -> str:
    """Quote a key for a shell's command line, always in single quotes, as paths may hold anything."""
    return "'" + key.replace("'", "'\\''") + "'"


def order(words: str, key: str, workspace: str | None, *options: str) -> str:
    """Return a command for a shell; it names a workspace that is a folder, so that it works in every folder."""
    where = f" --workspace {in_quotes(workspace)}" if workspace and workspace.startswith("/") else ""
    return f"`trustfold {words} {in_quotes(key)}{''.join(f' {option}' for option in options)}{where}`"


def make_key(tool_name: str, params: Mapping[str, str]) -> str:
    """Return `tool|name=value|…` with parameters sorted by name; parameters without a value are omitted."""
    parts = [f"{name}={escape(value)}" for name, value in sorted(params.items()) if value]
    return "|".join([tool_key(tool_name), *parts])


def parse_key(key: str) -> tuple[str, str]:
    """Return tool name and parameter signature of a key, escaped as in the key."""
    for found in re.finditer(r"\\.|\|", key, re.DOTALL):
        if found.group() == "|":
            return key[: found.start()], key[found.end() :]
    return key, ""


def tool_of_key(key: str) -> str:
    """Return the tool name of a trust key; the key itself if it names another scope."""
    return key if has_scope(key) else unescape(parse_key(key)[0])


def unescape(text: str) -> str:
    """Undo the escaping of `tool_key`."""
    return _ESCAPED.sub(lambda found: _UNESCAPED.get(found[1], found[1]), text)


_SERVICE_PARAM = re.compile(r"\|(?:domain|mcp_server)=((?:\\.|[^|\\])+)")


@lru_cache(maxsize=8192)
def service_of_key(key: str) -> str:
    """Return the service (domain or MCP server) in a fine key; empty without one."""
    found = _SERVICE_PARAM.search(key) if "|" in key else None
    return found.group(1) if found else ""


_BELOW_HOME = re.compile(r"\|path_prefix=(?:[A-Za-z]:)?/(?:home|Users|root|workspaces?)/")
_TOP_FOLDER = re.compile(r"\|path_prefix=(?:[\w+.-]+:(?=/))?/*(?:\\.|[^|\\/])*")


@lru_cache(maxsize=8192)
def family_of_key(key: str) -> str:
    """Return the family of a fine key: its service, else the tool and its path's top folder, else the key itself.

    Targets of one family tend to fail for one reason: `Read|path_prefix=/etc/ssl` is of the family
    `Read|path_prefix=/etc`. The top folder of a path on a drive or in a store is `C:/src` or `s3:/bucket`. Below a home
    each directory is its own: such a path does not say where a project begins, whose folders would be the top ones.
    """
    if service := service_of_key(key):
        return service
    if _BELOW_HOME.search(key) is not None:
        return key
    found = _TOP_FOLDER.search(key)
    return key[: found.end()] if found else key


def scope_of_key(key: str) -> str:
    """Return the scope whose state holds a trust or breaker key.

    `bash|command=rm` is held by `tool:bash`, `http_request|domain=api.example.com` by `service:api.example.com`.
    """
    if has_scope(key):
        return key
    service = service_of_key(key)
    return f"service:{service}" if service else f"tool:{tool_of_key(key)}"


def has_scope(key: str) -> bool:
    """Whether a key names a scope (`tool:…`, `service:…`, `tier:…`, `session:…`) rather than a target of a tool."""
    return key.startswith(SCOPES)


@lru_cache(maxsize=8192)
def tool_key(tool_name: str) -> str:
    """Trust key of a tool as a whole: its whole name, escaped, so that the name can be read back from every key.

    A name that reads like a scope has its colon escaped: the tool `service:x` is not the service `x`.
    """
    key = tool_name.translate(_ESCAPES)
    return key.replace(":", "\\:", 1) if has_scope(key) else key


@lru_cache(maxsize=8192)
def parent_directory(path: str) -> str:
    """Return the parent directory of a normalised path; `.` for a bare file name."""
    return posixpath.dirname(normal_path(path)) or "."


def normal_path(path: str) -> str:
    """Normalise a path; of a URL keep only scheme, host and path, as the rest may be a secret."""
    plain = path.strip().replace("\\", "/")
    if "://" in plain:
        plain = _CREDENTIALS.sub(r"\1", _QUERY.split(plain, 1)[0])
    return posixpath.normpath(plain)


@lru_cache(maxsize=8192)
def split_url(url: str) -> tuple[str, str]:
    """Domain (lower case, without credentials or default port) and first path segment of a URL.

    A segment that could be a token (`bot123:AAH…`, long and mixed) is left out.
    A URL without a scheme is read as `https`. What is no URL gives two empty strings.
    """
    text = url.strip()
    if "://" not in text:
        text = f"https://{text}"
    text = _CREDENTIALS.sub(r"\1", text)
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "", ""
    if not host or any(c.isspace() for c in host):
        return "", ""
    if _MIXED.search(parts.netloc) and redact_text(own := parts.netloc.rpartition("@")[2]) != own:
        return "", ""  # a secret, which would not be recognised in lower case
    if port is not None and port != _DEFAULT_PORTS.get(parts.scheme.lower()):
        host = f"{host}:{port}"
    segment = parts.path.lstrip("/").partition("/")[0]
    return host, segment if _SEGMENT.match(segment) else ""


def mcp_server(tool_name: str) -> str:
    """Return the MCP server in a tool's name: `mcp__server__tool` or `mcp_server_tool`; empty without one."""
    if tool_name.startswith("mcp__"):
        return tool_name[5:].partition("__")[0]
    if tool_name.startswith("mcp_"):
        server, separator, _ = tool_name[4:].partition("_")
        return server if separator else ""
    return ""


_COMMAND_ARGS = ("command", "cmd", "script", "commands", "command_line", "commandLine")


def shell_command(args: Mapping[str, Any]) -> str:
    """Return the command line of a shell tool's arguments: `command`, `cmd` or `script`, text or a list of words."""
    for name in _COMMAND_ARGS:
        value = args.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            words = [str(word) for word in value]
            if name == "commands":
                return "\n".join(words)
            if len(words) >= 3 and words[1].startswith("-") and words[1].endswith("c"):
                return words[2]
            return words[0] if len(words) == 1 else shlex.join(words)
    return ""


class ShellCommand(NamedTuple):
    """Command line of a shell call."""

    line: command_line.CommandLine  # what the folds use of it
    word: str  # its command word, from the line without secrets
    shown: str  # the line without secrets


class ToolFamily(NamedTuple):
    """Properties of a tool's targets, by its name."""

    kind: str  # `shell`, `code`, `file`, `directory`, `http`, or empty
    server: str  # MCP server, empty if it is none's


NO_FAMILIES: Mapping[str, str] = {}


def family_of(tool_name: str, families: Mapping[str, str] = NO_FAMILIES) -> ToolFamily:
    """Return the family of a tool: the first matching configured name or glob, else by its name."""
    return _family_by_rules(tool_name, tuple(families.items())) if families else _family_by_name(tool_name)


@lru_cache(maxsize=4096)
def _family_by_rules(tool_name: str, families: tuple[tuple[str, str], ...]) -> ToolFamily:
    family = _family_by_name(tool_name)
    kind = next((kind for pattern, kind in families if tool_name == pattern or fnmatchcase(tool_name, pattern)), "")
    return family._replace(kind=kind) if kind else family


@lru_cache(maxsize=4096)
def _family_by_name(tool_name: str) -> ToolFamily:
    server, plain = mcp_server(tool_name), _plain_name(tool_name)
    kind = next((kind for kind, names in _FAMILIES.items() if plain in names), "")
    return ToolFamily(kind, server)


@lru_cache(maxsize=4096)
def _plain_name(tool_name: str) -> str:
    """Return a tool's name in lower case, without its MCP server."""
    server = mcp_server(tool_name)
    if server:
        start = 4 if tool_name[4:5] != "_" else 5
        tool_name = tool_name[start + len(server) :].lstrip("_") or tool_name
    return tool_name.lower()


@lru_cache(maxsize=4096)
def is_shell(tool_name: str) -> bool:
    """Whether a tool runs shell commands, by its name."""
    return family_of(tool_name).kind == "shell"


def runs(tool_name: str, args: Mapping[str, Any], families: Mapping[str, str] = NO_FAMILIES) -> Runs:
    """Return the kind of program a tool runs; an MCP tool is a shell only if its arguments hold a command."""
    kind, server = family_of(tool_name, families) if families else _family_by_name(tool_name)
    if kind == "shell":
        return "shell" if not server or shell_command(args) else ""
    return "code" if kind == "code" else ""


def read_command(tool_name: str, args: Mapping[str, Any]) -> ShellCommand:
    """Parse the command line of a shell call by the rules of its shell."""
    windows = _plain_name(tool_name) in WINDOWS_SHELLS
    text = shell_command(args)
    command = (_read_before if len(text) <= MAX_TARGET_CHARS else _read)(text, windows)
    words = next((args[name] for name in _COMMAND_ARGS if isinstance(args.get(name), str | list)), "")
    if isinstance(words, list) and (shown := redact(words)) != words:
        return command._replace(word=command_line.read(shell_command({"cmd": shown}), windows=windows).word)
    return command


def _read(text: str, windows: bool) -> ShellCommand:  # noqa: FBT001 - a keyword slows the cache
    line = command_line.read(text, windows=windows)
    shown = redact_text(text)
    word = line.word if shown == text else command_line.read(shown, windows=windows).word
    return ShellCommand(line, word, shown)


_read_before = lru_cache(maxsize=4096)(_read)


def _text(args: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the first text among some arguments."""
    for name in names:
        if text := _text_in(args.get(name)):
            return text
    return ""


def _first(value: Any) -> str:
    """Return the first text of a list."""
    return _text_in(value[0]) if isinstance(value, list) and value else ""


def _text_in(value: Any) -> str:
    """Return a text, redacted; a number that may be a card's is converted to text for that."""
    if isinstance(value, str):
        return _shown(value)[:MAX_TARGET_CHARS]
    return HIDDEN if isinstance(value, int) and redact(value) == HIDDEN else ""


def _shown(text: str) -> str:
    """Return a text without secrets."""
    return _shown_before(text) if len(text) <= MAX_TARGET_CHARS else redact_text(text)


_shown_before = lru_cache(maxsize=4096)(redact_text)


def call_key(
    tool_name: str,
    args: Mapping[str, Any],
    service: str = "",
    command: ShellCommand | None = None,
    families: Mapping[str, str] = NO_FAMILIES,
) -> CallKey:
    """Return the key of a call by its tool name and arguments.

    Args:
        tool_name: as the event gives it.
        args: arguments.
        service: the MCP server, where the event names it.
        command: a shell call's command line, where it has been read already.
        families: configured families of tools.
    """
    kind, server = family_of(tool_name, families) if families else _family_by_name(tool_name)
    server = service or server
    if server or (server := _text_in(args.get("_mcp_server"))):
        return _of_server(tool_name, server)
    if kind == "shell":
        return _one(tool_name, "command", (command or read_command(tool_name, args)).word)
    if kind == "file" and (path := _text(args, _PATH_ARGS)):
        return _one(tool_name, "path_prefix", parent_directory(path))
    if kind == "directory" and (path := _text(args, _DIRECTORY_ARGS)):
        return _one(tool_name, "path_prefix", normal_path(path))
    if kind == "http" and (url := _text(args, ("url", "uri", "endpoint", "urls")) or _first(args.get("urls"))):
        domain, prefix = split_url(url)
        if domain:
            return CallKey(make_key(tool_name, {"domain": domain, "path_prefix": prefix}), escape(domain), "domain")
    return _one(tool_name, "", "")


def command_keys(tool_name: str, args: Mapping[str, Any]) -> list[str]:
    """Return the keys of all commands that a shell's line runs, without secrets."""
    line = redact_text(shell_command(args))
    windows = _plain_name(tool_name) in WINDOWS_SHELLS
    return [_one(tool_name, "command", name).fine for name in commands_of(line, windows=windows)]


def given_key(tool_name: str, failure_key: str, derived: CallKey) -> CallKey:
    """Return the key of a call whose publisher sends no arguments but the fine key.

    A domain or MCP server stands in that key; without it the call would count for no service. A key that is not one of
    the tool's becomes one, as a parameter: nobody's calls count in the record of another tool or of a service's whole.
    """
    if parse_key(failure_key)[0] != tool_key(tool_name):
        failure_key = make_key(tool_name, {"key": failure_key})
    service = service_of_key(failure_key)
    if not service or service == derived.service:
        return derived._replace(fine=failure_key)
    if derived.service:
        return derived  # it names another service than the call itself
    return CallKey(failure_key, service, "domain" if "|domain=" in failure_key else "mcp")

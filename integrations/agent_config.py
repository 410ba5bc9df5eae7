"""Edits the configuration of coding agents for `trustfold connect`.

Works on text, not on files, so that `--print` can show the result. Own entries are recognised by their target; all else
in a file is preserved, including comments and order.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .json_text import drop, parse, put, set_member

AGENTS = ("claude", "codex", "gemini", "qwen", "copilot", "opencode", "cursor")

CLIENT = "trustfold-hook.py"
"""Name of the client that agents run; marks an entry as trustfold's."""

MARK = "X-Trustfold"
"""Header that marks an HTTP entry as trustfold's; earlier versions wrote such."""

TIMEOUT_S = 2
"""Seconds after which an agent ends a hook; the client itself waits for half a second."""

_CLAUDE_EVENTS = (
    *("UserPromptSubmit", "PreToolUse", "PermissionRequest", "PermissionDenied", "PostToolUseFailure", "PostToolBatch"),
    *("MessageDisplay", "PostCompact", "Stop", "SubagentStop", "StopFailure", "SessionEnd"),
)
_EVENTS: dict[str, tuple[str, ...]] = {
    "claude": _CLAUDE_EVENTS,
    "qwen": ("SessionStart", "PreToolUse", "PostToolBatch", "Stop", "SubagentStop", "StopFailure", "SessionEnd"),
    "codex": (
        *("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SubagentStop", "SessionEnd"),
    ),
    "gemini": ("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "PreCompress", "AfterAgent", "SessionEnd"),
    "copilot": (
        *("sessionStart", "userPromptSubmitted", "preToolUse", "postToolUse", "postToolUseFailure", "preCompact"),
        *("notification", "agentStop", "sessionEnd"),
    ),
    "cursor": (
        *("beforeSubmitPrompt", "preToolUse", "postToolUse", "postToolUseFailure", "afterAgentResponse"),
        *("preCompact", "stop", "sessionEnd"),
    ),
}
_MATCHERS = {"PreToolUse": "*", "PostToolUse": "*", "PostToolUseFailure": "*", "BeforeTool": "*", "AfterTool": "*"} | {
    "PreCompress": "manual"  # `auto` comes before every request
}
"""Matcher of each event: any tool; for Gemini's PreCompress, compaction that the user orders."""

_OWN_FILES = frozenset({"copilot", "opencode"})
"""Agents with a file of their own for these hooks."""


@dataclass(frozen=True, slots=True)
class HookLink:
    """Connection of a hook to the server.

    Attributes:
        home: folder of this user's alone that holds the client, its `endpoint` and the server's socket.
        python: the interpreter that runs the client.
        shadow: answers are recorded and not sent.
    """

    home: Path
    python: str
    shadow: bool = False


def place_of(agent: str, project: Path | None, environ: Mapping[str, str], home: Path) -> Path:
    """Return the path of an agent's configuration: of a project, or of the user if `project` is None."""
    if project is not None:
        below = {
            "claude": ".claude/settings.local.json",
            "codex": ".codex/hooks.json",
            "gemini": ".gemini/settings.json",
            "qwen": ".qwen/settings.json",
            "copilot": ".github/hooks/trustfold.json",
            "opencode": ".opencode/plugin/trustfold.js",
            "cursor": ".cursor/hooks.json",
        }
        return project / below[agent]
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    own = {
        "claude": (environ.get("CLAUDE_CONFIG_DIR"), ".claude", "settings.json"),
        "codex": (environ.get("CODEX_HOME"), ".codex", "hooks.json"),
        "gemini": (None, ".gemini", "settings.json"),
        "qwen": (None, ".qwen", "settings.json"),
        "copilot": (environ.get("COPILOT_HOME"), ".copilot", "hooks/trustfold.json"),
        "opencode": (str(config / "opencode"), "", "plugin/trustfold.js"),
        "cursor": (None, ".cursor", "hooks.json"),
    }
    folder, usual, name = own[agent]
    return (Path(folder) if folder else home / usual) / name


def mcp_places(agent: str, project: Path, environ: Mapping[str, str], home: Path) -> list[Path]:
    """Return the files that configure an agent's MCP servers: the user's, and a project's."""
    own = place_of(agent, None, environ, home)
    config = own.parents[1] if agent in {"copilot", "opencode"} else own.parent
    places = {
        "claude": (home / ".claude.json", ".mcp.json"),
        "codex": (config / "config.toml", ".codex/config.toml"),
        "gemini": (own, ".gemini/settings.json"),
        "qwen": (own, ".qwen/settings.json"),
        "copilot": (config / "mcp-config.json", ".mcp.json"),
        "opencode": (config / "opencode.json", "opencode.json"),
        "cursor": (config / "mcp.json", ".cursor/mcp.json"),
    }
    of_user, of_project = places[agent]
    return [of_user, project / of_project]


def connected(agent: str, text: str, link: HookLink) -> str:
    """Return a configuration with trustfold's entries, replacing older ones.

    Args:
        agent: name of the agent.
        text: the configuration; empty without one.
        link: connection to the server.

    Raises:
        ConfigError: the text is not a configuration of this agent.
    """
    if agent == "opencode":
        return _plugin(link)
    entries = _entries(agent, link)
    if sorted(_ours_in(text), key=_event) == sorted(entries, key=_event):
        return text
    try:
        text = disconnected(agent, text) if agent not in _OWN_FILES else ""
        text = text if text.strip() else "{}\n"
        if agent in {"copilot", "cursor"}:
            text = set_member(text, "version", 1)
        for event, entry in entries:
            text = put(text, ["hooks", event], entry)
    except ValueError as error:
        raise ConfigError(f"the configuration of {agent} cannot be read ({error}); correct it") from error
    return text


def disconnected(agent: str, text: str) -> str:
    """Return a configuration without trustfold's entries; empty if nothing else is left.

    Raises:
        ConfigError: the text is not JSON.
    """
    if agent in _OWN_FILES:
        return ""
    if not text.strip():
        return text
    try:
        while (path := _first_of_ours(text)) is not None:
            text = drop(text, path)
            text = _without_empty(text, path[:-1])
    except ValueError as error:
        raise ConfigError(f"the configuration of {agent} cannot be read ({error}); correct it") from error
    return text


def is_connected(agent: str, text: str) -> bool:
    """Whether a configuration contains trustfold's entries.

    Raises:
        ValueError: the text is not JSON.
    """
    return bool(text.strip()) if agent in _OWN_FILES else _first_of_ours(text) is not None if text.strip() else False


def switched_off(agent: str, text: str) -> str:
    """Return the setting in a configuration that disables hooks; empty without one."""
    try:
        value = parse(text).value if text.strip() and agent != "opencode" else {}
    except ValueError:
        return ""
    if not isinstance(value, dict):
        return ""
    for name in ("disableAllHooks", "allowManagedHooksOnly", "disableHooks"):
        if value.get(name) is True:
            return name
    allowed = value.get("allowedHttpHookUrls")
    if agent == "claude" and isinstance(allowed, list) and not any("127.0.0.1" in str(one) for one in allowed):
        return "allowedHttpHookUrls"
    hooks_config = value.get("hooksConfig")
    if isinstance(hooks_config, dict) and hooks_config.get("enabled") is False:
        return "hooksConfig.enabled"
    return ""


def handlers(text: str) -> list[dict[str, Any]]:
    """Return the targets of trustfold's entries: with a `url` and `headers`, or with a command line."""
    entries = [entry for _, entry in _ours_in(text)]
    return [handler for entry in entries for handler in entry.get("hooks", [entry])]


def client_source() -> str:
    """Return the source text of the client."""
    return files(__package__).joinpath("hook_client.py").read_text(encoding="utf-8")


def _plugin(link: HookLink) -> str:
    source = files(__package__).joinpath("opencode_plugin.js").read_text(encoding="utf-8")
    home = json.dumps(str(link.home))
    return source.replace('"@HOME@"', home).replace("@QUERY@", "?shadow=1" if link.shadow else "")


def _entries(agent: str, link: HookLink) -> list[tuple[str, dict[str, Any]]]:
    return [(event, _entry(agent, event, link)) for event in _EVENTS[agent]]


def _entry(agent: str, event: str, link: HookLink) -> dict[str, Any]:
    if agent == "copilot":
        return {"type": "command", "bash": _command(link, agent, event), "timeoutSec": TIMEOUT_S}
    if agent == "cursor":
        return {"command": _command(link, agent), "timeout": TIMEOUT_S}
    handler: dict[str, Any] = {"type": "command", "command": _command(link, agent)}
    if agent == "gemini":
        handler["name"] = "trustfold"
    handler["timeout"] = TIMEOUT_S * 1000 if agent == "gemini" else TIMEOUT_S
    matcher = {"matcher": _MATCHERS[event]} if event in _MATCHERS else {}
    return matcher | {"hooks": [handler]}


def _command(link: HookLink, *words: str) -> str:
    """Return the client's command line. Python exits with 2 if a file is missing, which would block every call."""
    shadow = ["--shadow"] if link.shadow else []
    return f"{shlex.join([link.python, '-I', '-S', str(link.home / CLIENT), *words, *shadow])} 2>/dev/null || true"


def _ours_in(text: str) -> list[tuple[str, Any]]:
    """Return trustfold's entries in a configuration, by event."""
    try:
        hooks = parse(text).value.get("hooks", {}) if text.strip() else {}
        return [(event, entry) for event, entries in hooks.items() for entry in entries if _is_ours(entry)]
    except (ValueError, AttributeError, TypeError):
        return []


def _event(entry: tuple[str, Any]) -> str:
    return entry[0]


def _first_of_ours(text: str) -> list[str | int] | None:
    """Return the path of trustfold's entry, or of its handler in a foreign entry; None without one."""
    value = parse(text).value
    hooks = value.get("hooks") if isinstance(value, dict) else None
    for event, entries in hooks.items() if isinstance(hooks, dict) else ():
        for place, entry in enumerate(entries if isinstance(entries, list) else ()):
            if _is_ours(entry):
                return ["hooks", event, place]
            handlers = entry.get("hooks") if isinstance(entry, dict) else None
            for inner, handler in enumerate(handlers if isinstance(handlers, list) else ()):
                if _is_ours(handler):
                    return ["hooks", event, place, "hooks", inner]
    return None


def _is_ours(entry: Any) -> bool:
    """Whether an entry targets only trustfold."""
    if not isinstance(entry, dict):
        return False
    if isinstance(entry.get("hooks"), list):
        return bool(entry["hooks"]) and all(_is_ours(handler) for handler in entry["hooks"])
    headers, command = entry.get("headers"), entry.get("command") or entry.get("bash")
    return (isinstance(headers, dict) and MARK in headers) or (isinstance(command, str) and CLIENT in command)


def _without_empty(text: str, path: list[str | int]) -> str:
    """Return the text without the containers on a path that have become empty."""
    while path:
        node = parse(text)
        for step in path:
            node = node.members[step][1] if isinstance(step, str) else node.elements[step]
        if node.value:
            return text
        text = drop(text, path)
        path = path[:-1]
    return text

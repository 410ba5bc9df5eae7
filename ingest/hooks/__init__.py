"""Hooks of coding agents: converts their reports to events, and decisions to their answers.

`dialect` is the part common to all agents, a module per agent parses its payloads and formats its answers. Nothing
here reads a clock or does I/O.
"""

from __future__ import annotations

from .claude import CLAUDE
from .codex import CODEX
from .copilot import COPILOT
from .cursor import CURSOR
from .dialect import HookAnswer, HookDialect, HookEvent
from .gemini import GEMINI
from .opencode import OPENCODE
from .qwen import QWEN

DIALECTS: dict[str, HookDialect] = {one.agent: one for one in (CLAUDE, CODEX, GEMINI, QWEN, COPILOT, OPENCODE, CURSOR)}
"""Dialects by the agent's name on the command line and in the path of the endpoint."""

__all__ = ["DIALECTS", "HookAnswer", "HookDialect", "HookEvent"]

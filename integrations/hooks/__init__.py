"""Hooks of coding agents: what they report becomes events, and decisions become answers they act on.

`dialect` is what all agents have in common, a module per agent reads its payloads and writes its answers, and
`session` keeps what a conversation needs between two hooks. Nothing here reads a clock or talks to anybody.
"""

from __future__ import annotations

from .claude import CLAUDE, QWEN
from .codex import CODEX
from .copilot import COPILOT
from .cursor import CURSOR
from .dialect import Answer, Dialect, Hook
from .gemini import GEMINI
from .opencode import OPENCODE
from .session import HookSession

DIALECTS: dict[str, Dialect] = {one.agent: one for one in (CLAUDE, CODEX, GEMINI, QWEN, COPILOT, OPENCODE, CURSOR)}
"""By the agent's name on the command line and in the path of the endpoint."""

__all__ = ["DIALECTS", "Answer", "Dialect", "Hook", "HookSession"]

"""What a command line does, read once for all who ask: its command word, its class, its danger."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ...schemas.vocabulary import ToolClass
from .security import danger_of, is_suspect
from .shell import MAX_COMMAND_CHARS, SimpleCommand, simple_commands
from .tool_class import class_of_commands

_SETTERS = frozenset({"cd", "pushd", "popd", "set", "export", "source", "."})
_PLAIN_WORD = re.compile(r"[\w.+@%/-]{1,64}$")


class CommandLine(NamedTuple):
    """A command line as far as folds care.

    Attributes:
        word: the command word that names what it does: the first that is not `cd`, an assignment or a wrapper; empty
            where it does not look like one, for what is misread may be an argument, and so a secret.
        tool_class: action if any command acts, read only if every command reads.
        danger: what is dangerous about it, in a few words; empty if nothing is.
        suspect: it is dangerous if its failure says so too.
    """

    word: str
    tool_class: ToolClass
    danger: str
    suspect: bool


def read(line: str) -> CommandLine:
    """Read a command line; only its first `MAX_COMMAND_CHARS` count."""
    return _read(line[:MAX_COMMAND_CHARS])


@lru_cache(maxsize=4096)
def _read(line: str) -> CommandLine:
    commands = simple_commands(line)
    danger = danger_of(line, commands)
    return CommandLine(_word(commands), class_of_commands(commands), danger, is_suspect(line, commands))


def _word(commands: list[SimpleCommand]) -> str:
    fallback = ""
    for command in commands:
        name = command.name
        if name and name not in _SETTERS:
            break
        fallback = fallback or name
    else:
        name = fallback
    return name if _PLAIN_WORD.match(name) else ""

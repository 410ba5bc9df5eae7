"""Parsed command line, shared by all users: command word, class and danger."""

from __future__ import annotations

import re
from typing import NamedTuple

from ...schemas.vocabulary import ToolClass
from .danger import CallDanger, danger_of, is_suspect
from .programs import NOTHING_ASKED, CommandRequest, asked_by
from .shell import SimpleCommand, simple_commands
from .tool_class import class_of_commands, edits_first, waiting
from .unfold import without_middle

MAX_PROGRAMS = 8  # Largest number of different programs of a line that are kept

_SETTERS = frozenset({"cd", "pushd", "popd", "set", "export", "source", "."})
# A program on the command line that sleeps for ten seconds and more
_CODE_SLEEPS = re.compile(r"\b(?:time|asyncio)\.sleep\(\s{0,4}\d{2}")

_PLAIN_WORD = re.compile(r"[\w.+@%/-]{1,64}$")

MAX_DISPLAYS = 4  # Number of redirections and pipes at the end of a line that are left out

_SHOWS = re.compile(r"cat|(?:head|tail)(?: -(?:n ?|-lines[= ])?\d{1,6})?")
_SLEEPS = re.compile(r"\bsleep \d[\d.]{0,8}[smh]?(?=[\s;&]|\Z)")


class CommandLine(NamedTuple):
    """Properties of a command line that the folds use."""

    # the command word that names what it does: the first that is not `cd`, an assignment or a wrapper, or the one that
    # makes the line dangerous or risky; empty where it does not look like one, for what is misread may be an argument,
    # and so a secret
    word: str
    tool_class: ToolClass  # class of the line (`class_of_commands`)
    danger: CallDanger  # what is dangerous or risky about it
    suspect: bool  # it is dangerous if its failure says so too
    programs: tuple[str, ...] = ()  # the command words of all its commands, in order
    waits: bool = False  # it waits for something: `sleep`, `watch`, `--follow`
    only_waits: bool = False  # it does nothing else
    edits: bool = False  # it edits a file before it runs something else
    asked: CommandRequest = NOTHING_ASKED  # what its failure is judged by, by the shipped table of programs


def read(line: str, *, windows: bool = False) -> CommandLine:
    """Read a command line; only its first `MAX_COMMAND_CHARS` count, for danger all but the middle of a very long one.

    Args:
        line: the line.
        windows: it is for PowerShell or cmd, where a backslash escapes nothing.
    """
    line = without_middle(line.lstrip().replace("\0", ""))
    line = line.replace("\\", "/") if windows else line
    commands = simple_commands(line)
    danger = danger_of(line, commands)
    word, culprit = _word(commands), danger.command
    if culprit and culprit != word and _PLAIN_WORD.match(culprit):
        word = culprit  # what it did is charged to the command that did it, whatever stands before
    waits, only_waits = waiting(commands)
    called = tuple(dict.fromkeys(command.name for command in commands if command.name))[:MAX_PROGRAMS]
    found = class_of_commands(commands, waits=waits)
    waits = waits or (found is ToolClass.UNKNOWN and "sleep(" in line and _CODE_SLEEPS.search(line) is not None)
    suspect = is_suspect(line, commands)
    edits = found is ToolClass.ACTION and edits_first(commands)
    return CommandLine(word, found, danger, suspect, called, waits, only_waits, edits, asked_by(commands, {}))


def without_display(line: str) -> str:
    """A command line without what changes only how much of its output is shown, and how long it sleeps before.

    `make 2>&1 | tail -20` and `make | head -50` ask for the same, and so do two lines that sleep for different times.
    """
    line = line.strip()
    for _ in range(MAX_DISPLAYS):
        before, bar, last = line.rpartition("|")
        if line.endswith(" 2>&1"):
            line = line[:-5].rstrip()
        elif bar and before[-1:] != "|" and _SHOWS.fullmatch(last.strip()):
            line = before.rstrip()
        else:
            break
    return _SLEEPS.sub("sleep", line) if "sleep " in line else line


def _word(commands: list[SimpleCommand]) -> str:
    names = [command.name for command in commands if command.name]
    name = next((name for name in names if name not in _SETTERS), names[0] if names else "")
    return name if _PLAIN_WORD.match(name) and not _is_prose(commands[0].words) else ""


def _is_prose(words: tuple[str, ...]) -> bool:
    """Whether a line is a sentence that was sent to a shell: `The tests fail now.`; it names no program."""
    start = words[0] if words else ""
    plain = start.replace("'", "").isalpha() and start[0].isupper() and (start[1:].islower() or start == "I")
    if len(words) < 3 or not plain:
        return False
    return all(word.strip("'\".,:;!?()").replace("'", "").replace("-", "").isalpha() for word in words[1:4])

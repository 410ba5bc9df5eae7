"""Records a session of a real agent that is connected to trustfold, as a picture of the terminal.

    python tests/agents/recording.py [--packages DIR] [--into FILE]

The agent, Copilot CLI from npm, works with a fake model that follows a script: one command fails until trustfold
refuses it. Everything in the picture was printed by the agent and by trustfold; only the home folder, times of day and
the agent's own statistics, which no two runs have in common, are replaced or left out.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
from pathlib import Path

from fake_model import DONE, FakeModel
from programs import PROGRAMS
from rich.console import Console
from rich.text import Text
from trial import PACKAGES, Failed, Trial, install

AGENT = "copilot"
COMMANDS = ("./release 1.4",) * 4
WIDTH = 104
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "connected-agent.svg"
MOST_BYTES = 200_000

_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
_UNPACKING = re.compile(r"^Package extraction took \d+ms\n", re.MULTILINE)
_TIME = re.compile(r"\b\d\d:\d\d:\d\d UTC")


def recorded(packages: Path) -> str:
    """What stands in the terminal at the end, with its colours.

    Raises:
        Failed: the agent cannot be installed, or something that the picture is to show is missing.
    """
    program = next(one for one in PROGRAMS if one.name == AGENT)
    if reason := install(program, packages):
        raise Failed(reason)
    trial = Trial(program, packages)
    del trial.environ["NO_COLOR"]
    trial.environ |= {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}
    shown = [_ours(trial, "connect", AGENT)]
    try:
        with FakeModel(COMMANDS) as model:
            _, _, said = trial.run(model)
        whole, found, _ = said.rpartition(DONE)
        if not found:
            raise Failed(f"the session did not end: {said[-500:]}")
        session = _UNPACKING.sub("", whole).strip()
        shown += [_prompt(f'{AGENT} -p "release it"'), session, "", f"{found}\n", _ours(trial, "status")]
    finally:
        trial.trustfold("up", "--stop")
    text = "\n".join(shown).replace(str(trial.home), "/home/ada")
    text = _TIME.sub("12:00:00 UTC", text)
    plain = Text.from_ansi(text).plain
    for part in ("Permission denied", "(hint)", "is escalated", "ESCALATED"):
        if part not in plain:
            raise Failed(f"the picture would not show {part!r}: {plain}")
    return text


def _ours(trial: Trial, *words: str) -> str:
    """One of our commands, and what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "trustfold", *words],
        cwd=trial.project,
        env=trial.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return f"{_prompt(' '.join(['trustfold', *words]))}\n{done.stdout.rstrip()}\n"


def _prompt(command: str) -> str:
    return f"\x1b[1;32m$\x1b[0m \x1b[1m{command}\x1b[0m"


def picture(text: str) -> str:
    """A text with colours as an SVG that needs nothing from elsewhere, the same for the same text."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text))
    drawn = console.export_svg(title="A coding agent connected to trustfold", unique_id="trustfold")
    return _FONT_FACE.sub("", drawn)


def main() -> int:
    """Record a session; 1 where that is not possible."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="where the agent is installed")
    parser.add_argument("--into", type=Path, default=PICTURE, help="the picture")
    options = parser.parse_args()
    try:
        drawn = picture(recorded(options.packages))
    except (Failed, subprocess.SubprocessError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if len(drawn.encode()) > MOST_BYTES:
        print(f"the picture has {len(drawn.encode()):,} bytes, more than {MOST_BYTES:,}", file=sys.stderr)
        return 1
    options.into.parent.mkdir(parents=True, exist_ok=True)
    options.into.write_text(drawn, encoding="utf-8")
    print(os.path.relpath(options.into))
    return 0


if __name__ == "__main__":
    sys.exit(main())

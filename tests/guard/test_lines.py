"""A line of a shell is asked about by all the commands in it, so that none hides behind another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from trustfold.guard.testing import guard_for_tests, set_state

COMMANDS = """terraform kubectl-apply deployctl psql pg_restore aws gcloud helm ansible flyctl rsync mvn gradle cypress
tool3 migrate7 my-cli backup.sh seed_db wrangler""".split()

EACH = 4
"""Number of commands that each line is tried with."""

KNOWN_TO_PASS = {
    "expect -c 'spawn X a'": "the language of expect is not read",
}


def held(name: str) -> tuple[dict[str, bool], int]:
    """The lines of a file, whether a guard asks about all of their spellings or none, and the number of spellings."""
    rows = [row for row in (Path(__file__).parent / name).read_text().splitlines()[1:] if row]
    guards = {command: guard_for_tests() for command in COMMANDS}
    for command, guard in guards.items():
        set_state(guard, "trust", f"bash|command={command}", state="escalated", scope="key")
    asked: dict[str, set[bool]] = {}
    for number, row in enumerate(rows):
        for place in range(EACH):
            command = COMMANDS[(number + 5 * place) % len(COMMANDS)]
            line = row.replace("\\n", "\n").replace("X", command)
            asked.setdefault(row, set()).add(guards[command].check("bash", {"command": line}).ask)
    assert all(len(answers) == 1 for answers in asked.values())
    return {row: answers.pop() for row, answers in asked.items()}, EACH * len(asked)


def test_no_spelling_walks_around_an_escalated_command() -> None:
    """At most one in fifty passes, and each that does is named."""
    asked, number = held("spellings.txt")
    passed = {row for row, held_back in asked.items() if not held_back}
    assert passed == KNOWN_TO_PASS.keys()
    assert len(passed) * EACH <= number / 50
    assert number >= 600


def test_lines_that_only_name_an_escalated_command_run() -> None:
    """It is text, a file, a package or a process there."""
    asked, number = held("harmless_lines.txt")
    assert not [row for row, held_back in asked.items() if held_back]
    assert number >= 240


@pytest.mark.parametrize(
    "line",
    [
        "& 'C:\\bin\\deployctl.exe' up",
        "Invoke-Expression 'deployctl up'",
        "iex 'deployctl up'",
        "$found = deployctl up",
        ". deployctl up",
        "$it = 'deployctl'; & $it up",
        "DeployCtl.cmd up",
        "deploy`ctl up",
    ],
)
def test_no_spelling_of_powershell_walks_around_an_escalated_command(line: str) -> None:
    """Strings that are run, variables, endings, letters of either case, escapes."""
    guard = guard_for_tests()
    set_state(guard, "trust", "powershell|command=deployctl", state="escalated", scope="key")
    assert guard.check("powershell", {"command": line}).ask
    assert not guard.check("powershell", {"command": "Write-Output deployctl; $it = 'deployctl'"}).ask

"""What real agents are put through: scripts in the tools of each, what must come of them, and the table of what did."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fake_model import SUBAGENT, Step

AGENTS = {
    "claude": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "qwen": "Qwen Code",
    "opencode": "OpenCode",
    "copilot": "Copilot CLI",
}
PAGE = Path(__file__).parents[2] / "docs" / "connect.md"
BEGIN, END = "<!-- written by `make agents` -->\n", "<!-- end -->\n"
HEAD = "| what happens | agent | the model was told | the person saw | decided |\n|---|---|---|---|---|\n"
NOTHING = "–"
LAST_WORDS = "the model's last words"

FILE = "price.py"
RED = "./red"
"""Tests that fail with the same words, whatever the file holds."""

LOOK = "./look"
TURNS = ("./look left", "./look right")
"""Calls that make a loop of two: some agents end a run by themselves that makes one call again and again."""

BLOCKED = "./launch now"
KEY = "launch"

Steps = Sequence[str | Step]


def edit(agent: str, old: str, new: str) -> Any:
    """An edit of the file with the agent's own tool: name and arguments, or a command."""
    path = f"@project@/{FILE}"
    match agent:
        case "claude":
            return ("Edit", {"file_path": path, "old_string": old, "new_string": new})
        case "gemini" | "qwen":
            tool = "replace" if agent == "gemini" else "edit"
            return (tool, {"file_path": path, "instruction": "set it", "old_string": old, "new_string": new})
        case "opencode":
            return ("edit", {"filePath": path, "oldString": old, "newString": new})
        case "copilot":
            return ("edit", {"path": path, "old_str": old, "new_str": new})
    return f"apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: {FILE}\n@@\n-{old}\n+{new}\n*** End Patch\nEOF"


def read(agent: str) -> Any:
    """A look at the file with the agent's own tool."""
    path = f"@project@/{FILE}"
    tools = {
        "claude": ("Read", {"file_path": path}),
        "gemini": ("read_file", {"file_path": path}),
        "qwen": ("read_file", {"file_path": path}),
        "opencode": ("read", {"filePath": path}),
        "copilot": ("view", {"path": path}),
    }
    return tools.get(agent, f"cat {FILE}")


def background(agent: str) -> list[Any]:
    """Calls that start another agent, in the background where the agent can do that; none for an agent without."""
    about = {"description": "look around", "prompt": SUBAGENT}
    tools: dict[str, Any] = {
        "claude": ("Agent", about | {"subagent_type": "general-purpose", "run_in_background": True}),
        "gemini": ("invoke_agent", {"agent_name": "generalist", "prompt": SUBAGENT}),
        "qwen": ("agent", about | {"subagent_type": "general-purpose", "run_in_background": True}),
        "opencode": ("task", about | {"subagent_type": "general"}),
        "copilot": ("task", about | {"agent_type": "general-purpose", "name": "scout", "mode": "background"}),
    }
    return [tools[agent]] if agent in tools else []


def _healthy(agent: str) -> Steps:
    begun: list[str | Step] = ["ls", Step((read(agent),), "I look at the price."), RED]
    begun += [Step((one,), "Another agent looks around.") for one in background(agent)]
    edited = (Step((edit(agent, f"PRICE = {n}", f"PRICE = {n + 1}"),), "") for n in range(3))
    work: list[str | Step] = [step for one in edited for step in (one, RED)]
    return (*begun, *work, "git status --short", "./slow", f"cat {FILE}", "./look around", "git diff --stat")


EDITS = (
    f"sed -i 's/0/1/' {FILE}",
    f"perl -pi -e 's/1/2/' {FILE}",
    f"python3 - <<'EOF'\nfrom pathlib import Path\nPath('{FILE}').write_text('PRICE = 3\\n')\nEOF",
    f"printf 'PRICE = 4\\n' > {FILE}",
    f"echo 'PRICE = 5' | tee {FILE}",
    f"cat > {FILE} <<'EOF'\nPRICE = 6\nEOF",
    f"awk '{{sub(6, 7); print}}' {FILE} > new && mv new {FILE}",
    f"printf -- '--- a/{FILE}\\n+++ b/{FILE}\\n@@ -1 +1 @@\\n-PRICE = 7\\n+PRICE = 8\\n' | git apply -",
    f"cp old/{FILE} {FILE}",
    f"git checkout -q -- {FILE}",
)
"""Edits by ten programs."""

DEAD = (
    "curl -sS http://127.0.0.1:9/a",
    "python3 -c 'import urllib.request; urllib.request.urlopen(\"http://127.0.0.1:9/b\")'",
    "git ls-remote http://127.0.0.1:9/c.git",
)
"""A host that is dead, behind three programs."""


class Outcome(NamedTuple):
    """What came of a scenario, as the cells of a row: for the model, for the person, and in the server."""

    told: str
    seen: str
    decided: str


@dataclass(frozen=True)
class Scenario:
    """One scenario.

    Attributes:
        what: what happens, as the table says it.
        steps: script of an agent.
        told: what the model must be told, of "nudge", "refusal" and "reason" (of a question without a person); none: it
            must be told nothing.
        decided: parts of what must be decided; none: nothing must be.
        never: parts of what may not be decided.
        words: the run ends with words of the model, for the person to read.
        terminal: in a terminal, where a person says "go on" after the script, stops `./slow`, and says it once more.
        interrupted: the turn is interrupted while `./slow` runs, and goes on by a second run of the same session.
        hung: the server stands still while the agent works.
        blocks: a key is blocked before.
    """

    what: str
    steps: Callable[[str], Steps]
    told: frozenset[str] = frozenset()
    decided: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    words: bool = True
    terminal: bool = False
    interrupted: bool = False
    hung: bool = False
    blocks: bool = False

    def faults(self, found: Outcome) -> list[str]:
        """What is not as it must be."""
        kinds = {re.sub(r"^\d+ |s$", "", one) for one in found.told.split(", ") if one != NOTHING}
        wrong = [f"the model was not told a {one}" for one in sorted(self.told - kinds)]
        if not self.told and found.told != NOTHING:
            wrong.append(f"the model was told {found.told}")
        wrong += [f"{one} was not decided" for one in self.decided if one not in found.decided]
        wrong += [f"{one} was decided" for one in self.never if one in found.decided]
        if self.words and LAST_WORDS not in found.seen:
            wrong.append(f"the person saw {found.seen}")
        if not self.decided and found.decided != NOTHING:
            wrong.append(f"it was decided: {found.decided}")
        return wrong


SCENARIOS = {
    "healthy": Scenario(
        "healthy work: edits, red tests, an agent in the background, a turn that is interrupted and goes on",
        _healthy,
        interrupted=True,
    ),
    "edited": Scenario(
        "a test stays red while ten programs edit the file", lambda _: [s for one in EDITS for s in (RED, one)]
    ),
    "waiting": Scenario(
        "eight looks at a build that waits in a queue", lambda _: ("sleep 1 && ./queued", "sleep 2 && ./queued") * 4
    ),
    "rejected": Scenario(
        "eight edits that do not fit the file",
        lambda agent: [Step((edit(agent, f"NONE = {n}", "X = 1"),), f"Now I edit {n}.") for n in range(8)] + ["ls"],
        told=frozenset({"nudge"}),
        decided=("failure_streak",),
        never=("pause", "announce"),
    ),
    "twins": Scenario(
        "four equal calls side by side, twice", lambda _: (Step((LOOK,) * 4), "./check", Step((LOOK,) * 4))
    ),
    "dead": Scenario(
        "a dead host behind three programs",
        lambda _: DEAD * 2,
        told=frozenset({"nudge"}),
        decided=("missing_environment",),
    ),
    "failing": Scenario(
        "a command fails three times, then once more",
        lambda _: [f"./release {n}" for n in ("one", "two", "three", "four")],
        told=frozenset({"refusal"}),
        decided=("release escalated",),
    ),
    "blocked": Scenario(
        "a blocked command",
        lambda _: ("ls", BLOCKED),
        told=frozenset({"refusal"}),
        decided=("launch blocked",),
        blocks=True,
    ),
    "loop": Scenario("the same call four times", lambda _: (LOOK,) * 4, frozenset({"nudge"}), ("repetitive_calls",)),
    "pause": Scenario(
        "two calls in turn, seven times each: a pause",
        lambda _: TURNS * 7,
        frozenset({"nudge", "refusal"}),
        ("repetitive_calls", "pause"),
    ),
    "deaf": Scenario(
        "the same, also when they are refused",
        lambda _: TURNS * 10,
        frozenset({"nudge", "refusal"}),
        ("repetitive_calls", "pause"),
        words=False,
    ),
    "terminal": Scenario(
        "in a terminal: a pause, the person says to go on, stops the next call, and says it again",
        lambda _: TURNS * 7,
        frozenset({"nudge", "refusal"}),
        ("repetitive_calls", "pause"),
        terminal=True,
    ),
    "hung": Scenario("a server that hangs", lambda _: [f"./look {n}" for n in range(6)], hung=True),
    "order": Scenario(
        "orders from inside: `reset`, in a terminal of its own, with a cleared environment",
        lambda _: (
            "@trustfold@ reset all --yes",
            "script -qec '@trustfold@ reset all --yes' /dev/null",
            "env -i HOME=$HOME XDG_DATA_HOME=$XDG_DATA_HOME @trustfold@ reset all --yes",
            BLOCKED,
        ),
        told=frozenset({"refusal"}),
        decided=("launch blocked",),
        blocks=True,
    ),
}
"""Scenarios by name."""

LIMITS = {("twins", "opencode"): "OpenCode ends a run without a person if one message makes three equal calls."}
"""What an agent does otherwise, by scenario and agent: the words of the page that say so."""


def rows(table: str) -> dict[tuple[str, str], Outcome]:
    """Outcomes by the name of the scenario and the agent, as a table states them."""
    names = {one.what: name for name, one in SCENARIOS.items()}
    agents = {shown: name for name, shown in AGENTS.items()}
    found, what = {}, ""
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        what = cells[0] or what
        for agent in cells[1].split(", "):
            found[names.get(what, what), agents.get(agent, agent)] = Outcome(*cells[2:])
    return found


def table(outcomes: dict[tuple[str, str], Outcome]) -> str:
    """The table of outcomes; agents with the same one share a row."""
    lines = []
    for name, scenario in SCENARIOS.items():
        shared: dict[Outcome, list[str]] = {}
        for agent, shown in AGENTS.items():
            if found := outcomes.get((name, agent)):
                shared.setdefault(found, []).append(shown)
        for number, (found, agents) in enumerate(shared.items()):
            lines.append(f"| {'' if number else scenario.what} | {', '.join(agents)} | {' | '.join(found)} |\n")
    return HEAD + "".join(lines)


def on_page() -> tuple[str, str, str]:
    """The page before the table, the table, and the page after it."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    inside, _, after = rest.partition(END)
    return before + BEGIN, inside, END + after


def write(found: dict[tuple[str, str], Outcome]) -> None:
    """Write outcomes into the table of the page, beside those of other agents and scenarios."""
    before, inside, after = on_page()
    PAGE.write_text(before + table(rows(inside) | found) + after, encoding="utf-8")


def counted(words: Iterable[str]) -> str:
    """Words with their numbers: "2 nudges, 1 refusal"."""
    seen: dict[str, int] = {}
    for word in words:
        seen[word] = seen.get(word, 0) + 1
    return ", ".join(f"{number} {word}{'s' if number > 1 else ''}" for word, number in seen.items()) or NOTHING

"""Connects real agents to trustfold and lets each work through scripted sessions against a fake model.

    python tests/agents [--packages DIR] [--only SCENARIO] [--cost ROUNDS] [AGENT...]

First the configuration is written twice and taken back, and the agent works without a server. Then come the scenarios
of `agent_scenarios`: what the model was told, what a person saw and what was decided is compared with what must be, and
written into the table of `docs/connect.md`. Last, real MCP servers are called through the proxy (`mcp_servers`). What
cannot be installed here is skipped with the reason. `--cost` does none of this, and measures what hooks cost.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cost
import mcp_servers
from agent_scenarios import AGENTS, BLOCKED, LAST_WORDS, LIMITS, NOTHING, SCENARIOS, Outcome, Scenario, counted, write
from fake_model import DONE, FakeModel
from programs import PROGRAMS, Program
from record import placed
from trial import PACKAGES, ROOT, Failed, Trial, install
from trustfold.guard.result import NO_DETOUR
from trustfold.integrations.hook_client import SOCKET

END = 1500
"""Characters of what a program printed that are shown where something is wrong."""

MCP = "mcp"
_LABELS = {"context": "nudge", "refusal": "refusal", "question": "refusal", "pause": "pause"}
_PIECE = 8
_DRAWN = 20
"""Characters of a text that a terminal shows in one piece, at least and usually."""

_START = 60
"""Characters at the start of a text by which it is found again."""


class Server:
    """The server that a connection has started."""

    def __init__(self, trial: Trial) -> None:
        self._address, self._token = (trial.home / ".local/share/trustfold/endpoint").read_text().split("\n")[:2]

    def request(self, path: str, body: bytes | None = None) -> bytes:
        """Answer to a request."""
        headers = {"Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(f"http://{self._address}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: bytes = answer.read()
            return found

    def decisions(self) -> list[dict[str, Any]]:
        """Everything that it has decided."""
        lines = map(json.loads, self.request("/v1/decisions?limit=10000").splitlines())
        return [one.get("value") or one for one in lines]

    def heard(self) -> int:
        """Number of hooks received."""
        return sum(int(one["hooks"]) for one in json.loads(self.request("/v1/hooks"))["agents"].values())

    def block(self, trial: Trial) -> None:
        """Have a key blocked: a call of it was dangerous."""
        base = {
            "schema_version": "1.0",
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "session_id": "earlier",
            "workspace_id": str(trial.project.resolve()),
            "call_id": "c",
            "tool_name": trial.program.shell,
        }
        began = base | {"id": "e1", "type": "tool_call.started", "args": {"command": BLOCKED}}
        error = {"severity": "security", "message": "it would launch"}
        ended = base | {"id": "e2", "type": "tool_call.finished", "status": "error", "error": error}
        body = b"\n".join(json.dumps(one).encode() for one in (began, ended))
        if json.loads(self.request("/v1/events", body))["accepted"] != 2:
            raise Failed("the server did not take the event that blocks a key")


def check_connection(program: Program, packages: Path) -> str:
    """Connect, take it back, and work without a server; returns what was measured."""
    trial, steps = Trial(program, packages), ["ls", *("./release one",) * 3]
    with FakeModel(steps) as model:
        plain = trial.run(model)
        without = len(model.requests)
    must(DONE in plain[2] or plain[0] == 0, f"without hooks it does not work: {plain[2][-END:]}")
    before = trial.settings.read_bytes() if trial.settings.exists() else None  # an agent may have completed its own
    trial.trustfold("connect", program.name)
    again = trial.settings.read_bytes()
    trial.trustfold("connect", program.name)
    must(trial.settings.read_bytes() == again, "connecting twice changes the configuration")
    trial.trustfold("connect", program.name, "--remove")
    after = trial.settings.read_bytes() if trial.settings.exists() else None
    must(after == before, "the configuration is not what it was")
    trial.trustfold("connect", program.name)
    trial.trustfold("up", "--stop")
    with FakeModel(steps) as model:
        alone = trial.run(model)
        must(len(model.requests) == without, f"without a server: {len(model.requests)} requests, not {without}")
    must(alone[0] == plain[0], f"without a server it ends with {alone[0]}, not {plain[0]}: {alone[2][-END:]}")
    return f"{plain[1]:.1f} s without hooks, {alone[1]:.1f} s with the server stopped"


def worked(name: str, scenario: Scenario, program: Program, packages: Path) -> tuple[Outcome, list[str]]:
    """Let an agent work through a scenario; returns what came of it, and what is wrong."""
    trial = Trial(program, packages)
    trial.trustfold("connect", program.name)
    server = Server(trial)
    ours = f"{shlex.quote(sys.executable)} -m trustfold"
    try:
        if scenario.blocks:
            server.block(trial)
        steps = placed(scenario.steps(program.name), trial.project, ours)
        with FakeModel(steps) as model:
            ended = _run(scenario, trial, model)
            told = model.said()
        said = json.loads(server.request("/v1/hooks"))["said"]
        lost = [one["text"] for one in said if one["kind"] in _LABELS and not _is_in(one["text"], told)]
        kinds = counted(_LABELS[one["kind"]] for one in said if one["kind"] in _LABELS and _is_in(one["text"], told))
        found = Outcome(kinds, _seen(said, ended), _decided(server.decisions()))
    finally:
        trial.trustfold("up", "--stop")
    wrong = [f"the model never got: {text}" for text in lost] + scenario.faults(found)
    if scenario.blocks and (trial.project / "launched").exists():
        wrong.append("the blocked command ran")
    if any(word in found.told for word in ("refusal",)) and "launch" in found.decided and NO_DETOUR not in told:
        wrong.append("the refusal does not forbid the detour")
    return found, wrong


def _run(scenario: Scenario, trial: Trial, model: FakeModel) -> tuple[int, float, str]:
    if scenario.interrupted:
        trial.run(model, until="slow.began")
        return trial.run(model, again=True)
    if scenario.terminal:
        return trial.in_terminal(model)
    if not scenario.hung:
        return trial.run(model)
    number = _process_behind(trial)
    os.kill(number, signal.SIGSTOP)
    try:
        return trial.run(model)
    finally:
        os.kill(number, signal.SIGCONT)


def _process_behind(trial: Trial) -> int:
    """Id of the server's process."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(trial.home / ".local/share/trustfold" / SOCKET))
        return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def _is_in(text: str, told: str) -> bool:
    """Whether the model was told each line of a text."""
    lines = [line for line in text.splitlines() if line.strip()]
    return all(json.dumps(line[:_START], ensure_ascii=False)[1:-1] in told for line in lines)


def _seen(said: Sequence[dict[str, Any]], ended: tuple[int, float, str]) -> str:
    """What a person saw of it: the words at the end, notices, the reason of a pause, an exit code."""
    notices = counted("notice" for one in said if one["kind"] == "notice")
    shown = "".join(ended[2].split())  # a terminal is drawn without blanks, and in parts
    words = "".join(DONE.split())
    seen = [LAST_WORDS] if any(words[at : at + _PIECE] in shown for at in range(len(words) - _PIECE)) else []
    seen += [notices] if notices != NOTHING else []
    reasons = ["".join(one["text"].split())[:_DRAWN] for one in said if one["kind"] in {"pause", "refusal"}]
    seen += ["the reason"] if any(reason in shown for reason in reasons) else []
    seen += [f"exit code {ended[0]}"] if ended[0] else []
    return ", ".join(seen) or NOTHING


def _decided(decisions: Sequence[dict[str, Any]]) -> str:
    found = []
    for one in decisions:
        match one.get("type"):
            case "pattern.detected":
                found.append(str(one["pattern"]))
            case "nudge.issued" if one.get("lane") == "pause":
                found.append("pause")
            case "trust.changed" if one.get("to") in {"escalated", "blocked"}:
                found.append(f"{str(one['key']).rpartition('=')[2]} {one['to']}")
            case "breaker.changed" if one.get("to") == "open":
                found.append(f"circuit of {one['key']} open")
    return ", ".join(dict.fromkeys(found)) or NOTHING


def must(holds: bool, why: str) -> None:
    """Fail unless something holds."""
    if not holds:
        raise Failed(why)


def attempts(chosen: Sequence[str], only: Sequence[str], packages: Path) -> Iterator[tuple[str, str, str]]:
    """Try the named agents, or all, and the MCP proxy: how each came out, its name, and what there is to say."""
    for program in PROGRAMS:
        if chosen and program.name not in chosen:
            continue
        if reason := install(program, packages):
            yield "skipped", program.name, reason
            continue
        if not only:
            try:
                yield "ok", f"{program.name} ({program.package})", check_connection(program, packages)
            except (Failed, subprocess.SubprocessError, OSError) as error:
                yield "FAILED", program.name, str(error)
        for name, scenario in SCENARIOS.items():
            if only and name not in only:
                continue
            try:
                found, wrong = worked(name, scenario, program, packages)
            except (Failed, subprocess.SubprocessError, OSError) as error:
                yield "FAILED", f"{program.name}: {name}", str(error)
                continue
            write({(name, program.name): found})
            limit = LIMITS.get((name, program.name), "")
            outcome = "ok" if not wrong else "limit" if limit else "FAILED"
            yield outcome, f"{program.name}: {name}", "; ".join([*wrong, *found])
    if (not chosen or MCP in chosen) and not only:
        yield from mcp_servers.trial(packages, ROOT / "homes" / MCP)


def costs(chosen: Sequence[str], rounds: int, packages: Path) -> Iterator[str]:
    """Measure what hooks cost the named agents, or all: lines of a table."""
    yield cost.HEAD
    for program in PROGRAMS:
        if (chosen and program.name not in chosen) or install(program, packages):
            continue
        trial = Trial(program, packages)
        trial.trustfold("connect", program.name)
        try:
            yield cost.row(trial, AGENTS[program.name], rounds, Server(trial).heard, _process_behind(trial))
        except Failed as error:
            yield f"{AGENTS[program.name]}: {error}\n"
        finally:
            trial.trustfold("up", "--stop")


def main() -> int:
    """Try what the command line names; 1 if one did not do as promised."""
    names = [*(one.name for one in PROGRAMS), MCP]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="*", help=f"of {', '.join(names)}; default: all", metavar="AGENT")
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="where the programs are installed")
    parser.add_argument("--only", action="append", choices=SCENARIOS, default=[], help="scenarios; default: all")
    parser.add_argument("--cost", type=int, metavar="ROUNDS", help="measure what hooks add to a call; 3 will do")
    options = parser.parse_args()
    if unknown := sorted(set(options.agents) - set(names)):
        parser.error(f"{unknown[0]} is none of {', '.join(names)}")
    if options.cost:
        for line in costs(options.agents, options.cost, options.packages):
            print(line, end="", flush=True)
        return 0
    wrong = 0
    for outcome, name, told in attempts(options.agents, options.only, options.packages):
        wrong += outcome == "FAILED"
        print(f"{outcome:<8} {name}: {told}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

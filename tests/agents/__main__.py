"""Connects real agents to trustfold and lets each work through a scripted session against a fake model.

    python tests/agents [--packages DIR] [AGENT...]

For each: a command fails three times, a loop forms, a blocked command and one that must be asked are tried; what the
model was told, what `trustfold status` shows and what is left of the configuration afterwards is checked. Then real MCP
servers are called through the proxy (`mcp_servers`). What cannot be installed here is skipped with the reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import mcp_servers
from fake_model import DONE, FakeModel
from programs import PROGRAMS
from trial import PACKAGES, ROOT, Failed, Trial, install
from trustfold.guard.result import NO_DETOUR

FAILING = ("./release one", "./release two", "./release three")
LOOP = ("./look",) * 4
BLOCKED = "./launch now"
ASKED = "./release four"

END = 1500
"""Characters of what a program printed that are shown where something is wrong."""


def block(trial: Trial) -> None:
    """Have a key blocked: a call of it was dangerous."""
    address, token = (trial.home / ".local/share/trustfold/endpoint").read_text().split("\n")[:2]
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
    request = urllib.request.Request(f"http://{address}/v1/events", body, {"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        if json.load(answer)["accepted"] != 2:
            raise Failed("the server did not take the event that blocks a key")


def check(trial: Trial) -> list[str]:
    """Everything that is promised; returns what was measured."""
    program = trial.program
    steps: Sequence[str] = (*FAILING, *LOOP, BLOCKED, ASKED)
    with FakeModel(steps) as model:
        plain = trial.run(model)
        without = len(model.requests)
    before = trial.settings.read_bytes() if trial.settings.exists() else None  # an agent may have completed its own
    must(DONE in plain[2] or plain[0] == 0, f"without hooks it does not work: {plain[2][-END:]}")
    (trial.project / "launched").unlink(missing_ok=True)

    trial.trustfold("connect", program.name)
    again = trial.settings.read_bytes()
    trial.trustfold("connect", program.name)
    must(trial.settings.read_bytes() == again, "connecting twice changes the configuration")
    block(trial)
    try:
        with FakeModel(steps) as model:
            ended = trial.run(model)
            told = model.said()
        status = json.loads(trial.trustfold("status", "--json"))
        keys = {(one["key"], one.get("state")) for one in status["states"] if one.get("state")}
        must(
            (f"{program.shell}|command=release", "escalated") in keys, f"status shows {keys}; it said {ended[2][-END:]}"
        )
        must("same result" in told, "no nudge about the loop reached the model")
        must("manual reset required" in told, "the refusal's reason did not reach the model")
        must(NO_DETOUR in told, "the refusal does not forbid the detour")
        must(not (trial.project / "launched").exists(), "the blocked command ran")
        must("is escalated" in told, "the question's reason did not reach the model")
        trial.trustfold("connect", program.name, "--remove")
        after = trial.settings.read_bytes() if trial.settings.exists() else None
        must(after == before, "the configuration is not what it was")
        trial.trustfold("connect", program.name)
    finally:
        trial.trustfold("up", "--stop")
    with FakeModel(steps) as model:
        alone = trial.run(model)
        must(
            len(model.requests) == without,
            f"without a server: {len(model.requests)} requests, not {without}: {alone[2][-END:]}",
        )
    must(alone[0] == plain[0], f"without a server it ends with {alone[0]}, not {plain[0]}: {alone[2][-END:]}")
    return [f"{plain[1]:.1f} s without hooks", f"{ended[1]:.1f} s with", f"{alone[1]:.1f} s with the server stopped"]


def must(holds: bool, why: str) -> None:
    """Fail unless something holds."""
    if not holds:
        raise Failed(why)


MCP = "mcp"


def attempts(chosen: Sequence[str], packages: Path) -> Iterator[tuple[str, str, str]]:
    """Try the named agents, or all, and the MCP proxy: how each came out, its name, and what there is to say."""
    for program in PROGRAMS:
        if chosen and program.name not in chosen:
            continue
        if reason := install(program, packages):
            yield "skipped", program.name, reason
            continue
        try:
            yield "ok", f"{program.name} ({program.package})", ", ".join(check(Trial(program, packages)))
        except (Failed, subprocess.SubprocessError, OSError) as error:
            yield "FAILED", program.name, str(error)
    if not chosen or MCP in chosen:
        yield from mcp_servers.trial(packages, ROOT / "homes" / MCP)


def main() -> int:
    """Try what the command line names; 1 if one did not do as promised."""
    names = [*(one.name for one in PROGRAMS), MCP]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="*", help=f"of {', '.join(names)}; default: all", metavar="AGENT")
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="where the programs are installed")
    options = parser.parse_args()
    if unknown := sorted(set(options.agents) - set(names)):
        parser.error(f"{unknown[0]} is none of {', '.join(names)}")
    wrong = 0
    for outcome, name, told in attempts(options.agents, options.packages):
        wrong += outcome == "FAILED"
        print(f"{outcome:<8} {name}: {told}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

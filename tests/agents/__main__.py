"""Connects real agents to trustfold and lets each work through a scripted session against a fake model.

    python tests/agents [--packages DIR] [AGENT...]

For each: a command fails three times, a loop forms, a blocked command and one that must be asked are tried; what the
model was told, what `trustfold status` shows and what is left of the configuration afterwards is checked. An agent that
cannot be installed here is skipped with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from fake_model import DONE, FakeModel
from programs import PROGRAMS, Program

ROOT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trustfold-agents"
FAILING = ("./release one", "./release two", "./release three")
LOOP = ("./look",) * 4
BLOCKED = "./launch now"
ASKED = "./release four"
SCRIPTS = {
    "release": 'echo "release: $1: Permission denied" >&2; exit 1',
    "look": "echo nothing new",
    "launch": "echo launched > launched",
}
PATIENCE = 600


class Failed(Exception):
    """Something is not as it should be."""


def install(program: Program, packages: Path) -> str:
    """Install a program; returns why it cannot be, empty where it could."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed here"
    if not start_of(program, packages)[-1].exists():
        packages.mkdir(parents=True, exist_ok=True)
        (packages / "package.json").exists() or (packages / "package.json").write_text('{"private": true}')
        words = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", program.package]
        done = subprocess.run(words, cwd=packages, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"npm cannot install {program.package}: {done.stderr.strip()[-200:]}"
    return "" if start_of(program, packages)[-1].exists() else f"{program.package} holds no program for this machine"


def start_of(program: Program, packages: Path) -> list[Path]:
    """What starts a program."""
    *runner, file = program.command
    return [*map(Path, runner), packages / "node_modules" / file]


class Trial:
    """One program in a home of its own."""

    def __init__(self, program: Program, packages: Path) -> None:
        self.program = program
        self.home = ROOT / "homes" / program.name
        shutil.rmtree(self.home, ignore_errors=True)
        self.project = self.home / "project"
        self.project.mkdir(parents=True)
        self._start = [str(one) for one in start_of(program, packages)]
        kept = ("PATH", "LANG", "TERM", "TMPDIR")
        self.environ = {name: os.environ[name] for name in kept if name in os.environ} | {
            "HOME": str(self.home),
            "XDG_DATA_HOME": str(self.home / ".local" / "share"),
            "NO_COLOR": "1",
        }
        subprocess.run(["git", "init", "-q"], cwd=self.project, check=True, env=self.environ)
        for name, text in SCRIPTS.items():
            (self.project / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.project / name).chmod(0o755)
        self.settings = self.home / program.settings[0]
        self.settings.parent.mkdir(parents=True, exist_ok=True)
        if program.settings[1]:
            self.settings.write_text(program.settings[1])

    def trustfold(self, *words: str) -> str:
        """Run one of our commands; returns what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "trustfold", *words],
            cwd=self.project,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode:
            raise Failed(f"trustfold {' '.join(words)}: {done.stderr}")
        return done.stdout

    def run(self, model: FakeModel) -> tuple[int, float, str]:
        """Let the program work; returns its exit code, its seconds and the end of what it printed."""

        def told(text: str) -> str:
            return text.replace("@model@", model.url).replace("@home@", str(self.home))

        for name, text in self.program.others.items():
            (self.home / name).write_text(told(text))
        began = time.monotonic()
        with subprocess.Popen(
            [*self._start, *self.program.words],
            cwd=self.project,
            env=self.environ | {name: told(value) for name, value in self.program.environ.items()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
                raise Failed(f"it did not end within {PATIENCE} s: {said[-500:]}") from None
        return process.returncode, time.monotonic() - began, said[-1500:]

    def block(self) -> None:
        """Have a key blocked: a call of it was dangerous."""
        address, token = (self.home / ".local/share/trustfold/endpoint").read_text().split("\n")[:2]
        base = {
            "schema_version": "1.0",
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "session_id": "earlier",
            "workspace_id": str(self.project.resolve()),
            "call_id": "c",
            "tool_name": self.program.shell,
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
    must(DONE in plain[2] or plain[0] == 0, f"without hooks it does not work: {plain}")
    (trial.project / "launched").unlink(missing_ok=True)

    trial.trustfold("connect", program.name)
    again = trial.settings.read_bytes()
    trial.trustfold("connect", program.name)
    must(trial.settings.read_bytes() == again, "connecting twice changes the configuration")
    trial.block()
    try:
        with FakeModel(steps) as model:
            ended = trial.run(model)
            told = model.said()
        status = json.loads(trial.trustfold("status", "--json"))
        keys = {(one["key"], one.get("state")) for one in status["states"] if one.get("state")}
        must((f"{program.shell}|command=release", "escalated") in keys, f"status shows {keys}; it said {ended}")
        must("Read the error" in told or "same result" in told or "in a loop" in told, "no nudge reached the model")
        must("in a loop" in told or "same result" in told, "no nudge about the loop reached the model")
        must("manual reset required" in told, "the refusal's reason did not reach the model")
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
            len(model.requests) == without, f"without a server: {len(model.requests)} requests, not {without}: {alone}"
        )
    must(alone[0] == plain[0], f"without a server it ends with {alone[0]}, not {plain[0]}: {alone[2]}")
    return [f"{plain[1]:.1f} s without hooks", f"{ended[1]:.1f} s with", f"{alone[1]:.1f} s with the server stopped"]


def must(holds: bool, why: str) -> None:
    """Fail unless something holds."""
    if not holds:
        raise Failed(why)


def main() -> int:
    """Try the named agents, or all; 1 if one did not do as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="*", help=f"of {', '.join(one.name for one in PROGRAMS)}; default: all")
    parser.add_argument("--packages", type=Path, default=ROOT / "packages", help="where the programs are installed")
    chosen = parser.parse_args()
    wrong = 0
    for program in PROGRAMS:
        if chosen.agents and program.name not in chosen.agents:
            continue
        if reason := install(program, chosen.packages):
            print(f"skipped  {program.name}: {reason}", flush=True)
            continue
        try:
            print(
                f"ok       {program.name} ({program.package}): {', '.join(check(Trial(program, chosen.packages)))}",
                flush=True,
            )
        except (Failed, subprocess.SubprocessError, OSError) as error:
            wrong += 1
            print(f"FAILED   {program.name}: {error}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

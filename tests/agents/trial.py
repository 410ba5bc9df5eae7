"""One agent in a home and a project of its own: installed, started, and given our commands."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from fake_model import FakeModel, Step
from programs import Program
from terminal import ESCAPE, Terminal

ROOT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trustfold-agents"
PACKAGES = ROOT / "packages"
PATIENCE = 600
SCRIPTS = {
    "release": 'echo "release: $1: Permission denied" >&2; exit 1',
    "look": "echo nothing new; sleep 0.2",  # Qwen Code loses the output of a program that ends at once
    "launch": "echo launched > launched",
    "red": "echo '1 failed, 3 passed'; exit 1",
    "queued": "echo 'build 7: queued'",
    "slow": "[ -e slow.began ] || { touch slow.began; sleep 60; }; echo done",
    "check": 'echo "FAILED price: $(cat price.py) is not 40"; exit 1',
}


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
        self.start = [str(one) for one in start_of(program, packages)]
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
        (self.project / "price.py").write_text("PRICE = 0\n")
        (self.project / "old").mkdir()
        (self.project / "old" / "price.py").write_text("PRICE = 9\n")
        for words in (("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "begin")):
            subprocess.run(["git", *words], cwd=self.project, check=True, env=self.environ)
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

    def prepared(self, model: FakeModel) -> dict[str, str]:
        """Write the program's own files; returns its environment."""

        def told(text: str) -> str:
            places = {"@model@": model.url, "@home@": str(self.home), "@project@": str(self.project.resolve())}
            for name, place in places.items():
                text = text.replace(name, place)
            return text

        for name, text in self.program.others.items():
            (self.home / name).write_text(told(text))
        return self.environ | {name: told(value) for name, value in self.program.environ.items()}

    def in_terminal(self, model: FakeModel) -> tuple[int, float, str]:
        """Let the program work in a terminal, where a person goes on after its script; returns as `run` does."""
        began = time.monotonic()
        with Terminal([*self.start, *self.program.terminal], self.project, self.prepared(model)) as terminal:
            if not terminal.wait(lambda: model.ended > 0):
                raise Failed(f"it did not come to an end: {terminal.text()[-1000:]}")
            model.steps += [Step(("./slow",)), Step(("ls",))]
            terminal.type("go on\r")
            if not terminal.wait((self.project / "slow.began").exists):
                raise Failed(f"it did not go on: {terminal.text()[-1000:]}")
            terminal.press(ESCAPE * self.program.escapes)
            ended = model.ended
            terminal.type("once more\r")
            if not terminal.wait(lambda: model.ended > ended):
                raise Failed(f"it did not go on again: {terminal.text()[-1000:]}")
            terminal.rest()
            return 0, time.monotonic() - began, terminal.text()

    def run(self, model: FakeModel, *, again: bool = False, until: str = "") -> tuple[int, float, str]:
        """Let the program work; returns its exit code, its seconds and what it printed.

        Args:
            model: what it works with.
            again: it goes on with its latest session.
            until: it is interrupted when a file of this name is in the project.
        """
        environ = self.prepared(model)
        began = time.monotonic()
        with subprocess.Popen(
            [*self.start, *(self.program.again if again else self.program.words)],
            cwd=self.project,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                while until and process.poll() is None and not (self.project / until).exists():
                    time.sleep(0.1)
                if until:
                    process.send_signal(signal.SIGINT)
                said, _ = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
                raise Failed(f"it did not end within {PATIENCE} s: {said[-500:]}") from None
        return process.returncode, time.monotonic() - began, said

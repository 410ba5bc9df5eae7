"""Records real agents at work: what their hooks sent and what stands in their own log of the same session.

    python tests/agents/record.py [--packages DIR] [AGENT[/SESSION]...]

Each session is written to `tests/ingest/recorded/AGENT-SESSION.jsonl`, a line for each hook (`event`, `payload`,
`at_ms`) and each line of the log (`log`), in the order in which they came. Nothing is said to the agent. Paths of this
machine are replaced.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from fake_model import FakeModel, Step
from programs import PROGRAMS
from recorded_sessions import sessions_of
from trial import PACKAGES, Failed, Trial, install
from trustfold.integrations.agent_config import CLIENT, HookLink, client_source, connected
from trustfold.integrations.hook_client import SOCKET

FOLDER = Path(__file__).parents[1] / "ingest" / "recorded"
LOGS = {
    "claude": ".claude/projects/*/*.jsonl",
    "codex": ".codex/sessions/*/*/*/rollout-*.jsonl",
    "gemini": ".gemini/tmp/*/chats/*.json*",
    "qwen": ".qwen/**/chats/*.jsonl",
    "copilot": ".copilot/session-state/*/events.jsonl",
}
"""Where each agent keeps the log of a session, below its home; OpenCode exports it."""

_TEXT = 1200
"""Characters kept of a text in a record: instructions of the agents are long, and theirs."""

_LEFT_OUT = re.compile(
    r'"(?:sub)?type": ?"(?:ui_telemetry|attribution_snapshot|api-request[a-z-]*|atis-latch|last-prompt|tools-used'
    r"|cost-state|prompt_snapshot|agent_listing_delta"
    r"|skill_listing|deferred_tools_delta|session_context|environment|token_usage_record|world_state|token_count"
    r'|thread_settings_applied|hook_success|system_prompt|hook\.start|hook\.end|session\.usage_record|session\.shutdown|system\.message)"'
)
"""Records about the agent itself; no reader looks at them."""


class Ear:
    """Takes hooks and answers nothing; writes down what came, and how far the log was by then."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._read: dict[Path, int] = {}
        self._lock = threading.Lock()
        self.lines: list[dict[str, Any]] = []
        self.home = trial.home / "trustfold"
        self.home.mkdir(mode=0o700)
        (self.home / CLIENT).write_text(client_source())
        (self.home / "endpoint").write_text("none\ntoken\n")
        self._server = ThreadingUnixStreamServer(str(self.home / SOCKET), _handler(self))
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def hear(self, event: str, payload: Any) -> None:
        """Write a hook down, behind what the log holds already."""
        with self._lock:
            at_ms = time.time_ns() // 1_000_000
            self.look()
            self.lines.append({"event": event, "at_ms": at_ms, "payload": payload})

    def look(self) -> None:
        """Write down what was added to the log."""
        for file in sorted(self._trial.home.glob(LOGS.get(self._trial.program.name, "none"))):
            data = file.read_bytes()
            seen = self._read.get(file, 0)
            whole = data.rfind(b"\n") + 1
            if whole > seen:
                self._read[file] = whole
                self.lines += [{"log": json.loads(line)} for line in data[seen:whole].splitlines() if line.strip()]


def _handler(ear: Ear) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            ear.hear(parse_qs(urlsplit(self.path).query).get("event", [""])[0], json.loads(body or b"{}"))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    return Handler


def recorded(trial: Trial, steps: Sequence[str | Step]) -> list[dict[str, Any]]:
    """Lines of one session."""
    with FakeModel(placed(steps, trial.project)) as model, Ear(trial) as ear:
        link = HookLink(ear.home, sys.executable)
        text = trial.settings.read_text() if trial.settings.exists() else ""
        trial.settings.write_text(connected(trial.program.name, text, link))
        code, seconds, said = trial.run(model)
        print(f"{trial.program.name}: {code} after {seconds:.0f} s, {len(model.requests)} requests", flush=True)
        ear.look()
        if trial.program.name == "opencode":
            ear.lines += [{"log": _exported(trial)}]
        if not any("payload" in line for line in ear.lines):
            raise Failed(f"no hook came: {said[-500:]}")
        return [*scrubbed(ear.lines, trial)]


def placed(steps: Sequence[str | Step], project: Path, ours: str = "") -> list[str | Step]:
    """Steps with the project's path in the arguments of their calls, and with our command."""
    text = json.dumps([one if isinstance(one, str) else one._asdict() for one in steps])
    known = json.loads(text.replace("@project@", str(project)).replace("@trustfold@", ours))
    return [
        one
        if isinstance(one, str)
        else Step(tuple(tuple(c) if isinstance(c, list) else c for c in one["calls"]), one["text"])
        for one in known
    ]


def _exported(trial: Trial) -> Any:
    program = trial.start[0]
    listed = subprocess.run(
        [program, "session", "list", "--format", "json"],
        cwd=trial.project,
        env=trial.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    [session] = json.loads(listed.stdout)
    done = subprocess.run(
        [program, "export", session["id"]],
        cwd=trial.project,
        env=trial.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout[done.stdout.index("{") :])


def scrubbed(lines: list[dict[str, Any]], trial: Trial) -> Iterator[dict[str, Any]]:
    """Lines without paths of this machine and long texts of the agent."""
    home = re.escape(str(trial.home))
    for line in lines:
        text = re.sub(home, "/home/dev", json.dumps(line, ensure_ascii=False))
        if "log" in line and _LEFT_OUT.search(text[:400] + text[-400:]):
            continue
        text = text.replace(str(trial.home).replace("/", "-").replace(".", "-"), "-home-dev")
        yield _shortened(json.loads(text))


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _TEXT else f"{value[:_TEXT]} …"
    if isinstance(value, dict):
        return {name: _shortened(inner) for name, inner in value.items() if name != "usage"}
    return [_shortened(inner) for inner in value] if isinstance(value, list) else value


def main() -> int:
    """Record what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sessions", nargs="*", metavar="AGENT[/SESSION]")
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="where the programs are installed")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    wrong = 0
    for program in PROGRAMS:
        for name, steps in sessions_of(program.name).items():
            if options.sessions and not {program.name, f"{program.name}/{name}"} & set(options.sessions):
                continue
            if reason := install(program, options.packages):
                print(f"{program.name}: {reason}")
                continue
            try:
                lines = recorded(Trial(program, options.packages), steps)
            except (Failed, OSError, ValueError) as error:
                wrong += 1
                print(f"{program.name}/{name}: {error}")
                continue
            text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
            (FOLDER / f"{program.name}-{name}.jsonl").write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

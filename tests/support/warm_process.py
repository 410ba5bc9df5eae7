"""Processes that begin with the package imported: forks of a template, which imports it once for all of them.

A start of the command `trustfold` takes a quarter of a second of CPU, nearly all of it for imports, and the tests start
it a thousand times. In all else a `WarmProcess` is a process as any other of this Python: it has its own environment,
working directory and standard streams, takes signals, and ends as the interpreter ends.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

NUMBER = 4
"""Bytes of a process id, and of a status, in a report."""


PATIENT_S = {
    ("trustfold.cli.render", "TELL_S"): 100.0,
    ("trustfold.guard.workspace", "WITHIN_S"): 20.0,
    ("trustfold.web.hooks", "FOLD_S"): 60.0,
    ("trustfold.web.hooks", "BUSY_FOLD_S"): 60.0,
}
"""Limits in seconds, by module and name, after which the product does without an answer: on a busy machine they would
decide what a test sees. A test of a limit sets it itself."""


def be_patient() -> None:
    """Lengthen the limits of modules that are imported."""
    for (module, name), seconds in PATIENT_S.items():
        if module in sys.modules:
            setattr(sys.modules[module], name, seconds)


started: list[WarmProcess] = []
"""Processes of this test, also those that have ended."""


def end_started() -> None:
    """End the processes that a failed test leaves: they would slow others down, and fail them by their warnings."""
    for process in started:
        with process:
            process.kill()
    started.clear()


class WarmProcess(subprocess.Popen[Any]):
    """A process given as to `Popen`: `[sys.executable, …]` with `-m MODULE`, `-c CODE` or a file, and its arguments."""

    def _execute_child(self, args: list[str | Path], *given: Any) -> None:
        """Have the template fork, instead of this process."""
        cwd, env, pipes = given[4], given[5], given[9:15]
        streams = [child if child != -1 else number for number, child in enumerate((pipes[0], pipes[3], pipes[5]))]
        request = {"words": [*map(str, args[1:])], "cwd": str(cwd or Path.cwd()), "env": dict(env or os.environ)}
        self._report, report = os.pipe()
        try:
            socket.send_fds(_template(), [json.dumps(request).encode()], [*streams, report])
        finally:
            os.close(report)
            self._close_pipe_fds(*pipes)
        self.pid = int.from_bytes(os.read(self._report, NUMBER))
        if not self.pid:
            raise ChildProcessError("the template of warm processes has ended; its error is above")
        self._child_created = True
        started.append(self)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """Read the status that `_watch` reports, in place of `os.waitpid`."""
        if wait_flags & os.WNOHANG and not select.select([self._report], [], [], 0)[0]:
            return 0, 0
        status = os.read(self._report, NUMBER)
        os.close(self._report)
        return self.pid, int.from_bytes(status)

    def _internal_poll(self, _deadstate: int | None = None, **_given: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                ended, status = self._try_wait(os.WNOHANG) if self.returncode is None else (0, 0)
                if ended:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


@cache
def _template() -> socket.socket:
    """Connection to the template of this process's children; the template ends when it is closed."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        template = subprocess.Popen([sys.executable, "-P", __file__, str(its.fileno())], pass_fds=[its.fileno()])
    atexit.register(template.wait)
    atexit.register(ours.close)
    return ours


def _serve(channel: socket.socket) -> dict[str, Any]:
    """Fork a process for each request, and report its end; returns the request in the process that is to become it."""
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([channel, *running], [], [])[0]:
            if ready in running:
                process, report = running.pop(ready)
                os.write(report, os.waitpid(process, 0)[1].to_bytes(NUMBER))
                os.close(report)
                os.close(ready)
                continue
            message, received, _, _ = socket.recv_fds(channel, 1 << 20, 3 + 1)
            if not message:
                os._exit(0)
            *streams, report = received
            process = os.fork()
            if not process:
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                os.closerange(3, max(*streams, report, channel.detach(), *running) + 1)
                request: dict[str, Any] = json.loads(message)
                return request
            for stream in streams:
                os.close(stream)
            os.write(report, process.to_bytes(NUMBER))
            running[os.pidfd_open(process)] = process, report


def _become(words: list[str], cwd: str, env: dict[str, str]) -> None:
    """Run a module or a file as the interpreter does."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        binary: Any = os.fdopen(number, "wb" if number else "rb")
        text = io.TextIOWrapper(
            binary,
            encoding="utf-8",
            errors="backslashreplace" if name == "stderr" else "strict",
            line_buffering=name == "stderr" or binary.isatty(),
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    code: Any = None
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(words[1], {"__name__": "__main__"})
        else:
            sys.argv = words
            sys.path.insert(0, str(Path(words[0]).parent))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code or 0)  # taking the interpreter down would copy every page of the template


if __name__ == "__main__":
    import trustfold

    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the processes, not for the template
    for module in pkgutil.walk_packages(trustfold.__path__, "trustfold."):
        if not module.name.startswith("trustfold.integrations.") and not module.name.endswith("__main__"):
            import_module(module.name)
    be_patient()
    gc.freeze()  # a collection in a process does not copy the pages
    given = _serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, interrupt)
    _become(**given)

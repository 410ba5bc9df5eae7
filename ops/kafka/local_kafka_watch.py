"""Run a program that must not outlive the one that asked for it.

    python local_kafka_watch.py GRACE REMOVE PROGRAM ARGUMENT…

Listens on standard input: a line `stop` ends the program (and kills it after GRACE seconds), `kill` kills it
at once. End of input means that whoever asked is gone, however it died: the program is stopped and the folder
REMOVE (unless "-") is deleted. Exits with the program's exit code, or 128 + the number of the signal that
ended it.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Let Linux kill this process when its parent dies, so that killing the watcher leaves nothing behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def stop(program: "subprocess.Popen[bytes]", grace: float) -> None:
    """Ask the program to end; kill it when it has not after `grace` seconds."""
    program.terminate()
    try:
        program.wait(timeout=grace)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def main(grace: float, remove: str, command: list[str]) -> int:
    """Run the command until it ends or is told to."""
    parent = os.getppid()
    # Signals are for the one who asked: it decides how the program ends, and says so on standard input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Safe in spite of its name: no thread runs yet when this forks.
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)  # noqa: PLW1509
    orphaned = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            if line.strip() == "kill":
                program.kill()
            elif line.strip() == "stop":
                stop(program, grace)
        orphaned.set()

    threading.Thread(target=listen, daemon=True).start()
    while program.poll() is None:
        # A process forked from the one who asked may hold our input open after its death: look at the parent
        # as well.
        if orphaned.is_set() or os.getppid() != parent:
            stop(program, grace)
            if remove != "-":
                shutil.rmtree(remove, ignore_errors=True)
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(timeout=0.25)
    code = program.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    exit_code = main(float(sys.argv[1]), sys.argv[2], sys.argv[3:])
    sys.stdout.flush()
    os._exit(exit_code)  # the listening thread still reads; do not wait for it

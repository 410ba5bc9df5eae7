"""A record that ends workers is found, although nothing of Python runs while it does."""

import signal
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import logging, re, sys
from pathlib import Path
from types import SimpleNamespace
from faust.types import TP
from trustfold.streams.kafka.fold_budget import FoldBudget
logging.basicConfig(format="%(message)s", stream=sys.stdout)
budget = FoldBudget(0.2)
budget.start(Path(sys.argv[1]))
tp = TP("events", 3)
records = [SimpleNamespace(offset=offset, timestamp=9) for offset in (6, 7, 8)]
for refused, some in budget.parts(tp, records):
    if refused:
        print("refused", [record.offset for record in some])
        continue
    with budget.watched(tp, some) as taken:
        for record in taken:
            if record.offset == 7:
                re.fullmatch(r"(?:a|a)+b", "a" * 60)
            print("folded", record.offset, flush=True)
sum(range(20_000_000))  # not a record's time
"""


def run(folder: Path) -> tuple[int, list[str]]:
    """Fold three records in a process; the second never ends."""
    environ = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, folder], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_the_third_worker_refuses_what_ended_two(tmp_path: Path) -> None:
    """Each end names the place and where the fold was; other records are folded, and no file is left behind."""
    assert run(tmp_path) == (-signal.SIGVTALRM, ["folded 6"])
    code, (told, *folded) = run(tmp_path)
    assert (code, folded) == (-signal.SIGVTALRM, ["folded 6"])
    assert told.startswith("a worker was ended because events/3, offset 7, took too much processor time (1 of 2 times")
    assert "fullmatch" in told or "<string>" in told
    assert run(tmp_path)[1][1:] == ["folded 6", "refused [7]", "folded 8"]
    assert run(tmp_path)[1] == ["folded 6", "refused [7]", "folded 8"]
    assert len(list(tmp_path.glob("*.place"))) == 1

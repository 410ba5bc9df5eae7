"""`make chaos`: kill, pause and restart workers, brokers and the recorder under load, then prove that nothing is wrong.

    python tests/chaos [--seed N] [--kills N] [--minutes M] [--brokers 1|3] [--json] [--keep DIR]

Ends when so many workers were killed, or when the time is over. Exit codes: 0 everything is as without trouble,
1 it is not (the random seed and the place of the logs are printed), 2 no broker can be run here.
"""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "streams" / "support"), str(HERE.parent / "support")]

import broker_kit  # noqa: E402, F401 - puts the local broker's scripts on the path
from campaign import Campaign, Options  # noqa: E402
from chaos_report import Report, render  # noqa: E402
from local_kafka import KafkaUnavailable  # noqa: E402


def main() -> int:
    """Run one campaign; gives the exit code."""
    parser = argparse.ArgumentParser(prog="chaos", description="A campaign of kills, pauses and restarts under load.")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(100_000), help="order of the blows")
    parser.add_argument("--kills", type=int, default=20, help="end after so many workers killed with -9 (20)")
    parser.add_argument("--minutes", type=float, default=10.0, help="end after so many minutes in any case (10)")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3, help="nodes of the cluster (3)")
    parser.add_argument("--outage", type=float, default=0.0, help="end with an outage of so many seconds (none)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--keep", type=Path, help="folder for logs and files; kept (default: temporary)")
    given = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # brokers come and go here; it need not tell
    options = Options(given.seed, given.kills, given.minutes, given.brokers, given.outage)
    folder = given.keep or Path(tempfile.mkdtemp(prefix="trustfold-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    report = Report(asdict(options))
    print(f"seed {options.seed}, logs in {folder}", file=sys.stderr, flush=True)
    try:
        with Campaign(options, folder, report) as campaign:
            campaign.run()
    except KafkaUnavailable as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report.as_json(), indent=2) if given.json else render(report))
    if report.problems:
        print(f"chaos: not as it should be; seed {options.seed}, logs in {folder}", file=sys.stderr)
        return 1
    if given.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

"""One broker for all processes of a parallel run: the first that asks starts it, and it ends after the last one."""

import dataclasses
import fcntl
import json
from collections.abc import Callable
from pathlib import Path

from .choice import Broker

RECORDED = ("bootstrap", "kind", "description", "passed_over")


def share(folder: Path, start: Callable[[], Broker]) -> Broker:
    """Give the broker that another process has recorded in `folder`, or start one and record it.

    Every user holds a shared lock from here to `close()`, where the process that started the broker waits for the
    others. Locks end with their process, however that ends. The mock lives inside of one process, so that each has
    its own. What `start` raises passes through, and the next process tries again.
    """
    record = folder / "broker.json"
    with (folder / "broker.turn").open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        mine = not record.exists()
        broker = start() if mine else Broker(**json.loads(record.read_text()))
        if not broker.durable:
            return broker
        record.write_text(json.dumps({name: getattr(broker, name) for name in RECORDED}))
        users = (folder / "broker.users").open("a")
        fcntl.flock(users, fcntl.LOCK_SH)

    def close() -> None:
        if mine and not users.closed:
            fcntl.flock(users, fcntl.LOCK_EX)  # when the last of the others has closed
            broker.close()
        users.close()

    return dataclasses.replace(broker, close=close)

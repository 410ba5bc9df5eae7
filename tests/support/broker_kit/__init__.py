"""A Kafka broker for tests: which kind there is here, topics to test with, and the fixtures (plugin.py).

Tests use the fixtures `broker`, `own_kafka` and `topic_prefix`; a program that is no test calls
`open_broker()`.
"""

import sys
from pathlib import Path

# The local broker is a script of ops/, for use without this repository's tests, and not part of any package.
_SCRIPTS = str(Path(__file__).resolve().parents[3] / "ops" / "kafka")
if _SCRIPTS not in sys.path:
    sys.path.append(_SCRIPTS)

from .choice import Broker, NoBroker, Unavailable, Way, choose, outlook, required  # noqa: E402 - after the path
from .topics import create_topics, delete_topics, new_prefix  # noqa: E402
from .ways import all_ways, open_broker  # noqa: E402

__all__ = [
    "Broker",
    "NoBroker",
    "Unavailable",
    "Way",
    "all_ways",
    "choose",
    "create_topics",
    "delete_topics",
    "new_prefix",
    "open_broker",
    "outlook",
    "required",
]

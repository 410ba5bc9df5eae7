"""A Kafka broker for tests (tests/brokers/README.md).

Tests use the fixtures `broker`, `own_kafka` and `topic_prefix` (plugin.py); a program that is no test calls
`open_broker()`.
"""

import sys
from pathlib import Path

# The local broker is a script of ops/, for use without this repository's tests, and not part of any package.
_SCRIPTS = str(Path(__file__).resolve().parents[3] / "ops" / "kafka")
if _SCRIPTS not in sys.path:
    sys.path.append(_SCRIPTS)

from .ways import Broker, NoBroker, delete_topics, open_broker  # noqa: E402 - after the path

__all__ = ["Broker", "NoBroker", "delete_topics", "open_broker"]

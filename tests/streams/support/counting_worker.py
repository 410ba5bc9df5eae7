"""A worker of the engine's own test stages, as a process: settings from TRUSTFOLD_*, exit code 2 if not started."""

import sys

from counting import TOPOLOGY
from trustfold.cli.clients.kafka_log import reaching_kafka
from trustfold.errors import TrustfoldError
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.worker import run_worker

if __name__ == "__main__":
    settings = KafkaSettings.from_env()
    try:
        with reaching_kafka(settings):
            code = run_worker(settings, object(), TOPOLOGY)
    except TrustfoldError as error:
        print(f"not started: {error}", file=sys.stderr)
        code = 2
    sys.exit(code)

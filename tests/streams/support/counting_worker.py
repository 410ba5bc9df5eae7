"""A worker of the engine's own test stages, as a process: settings from TRUSTFOLD_*, exit code from run_worker."""

import sys

from counting import TOPOLOGY
from trustfold.streams.kafka.settings import KafkaSettings
from trustfold.streams.kafka.worker import run_worker

if __name__ == "__main__":
    sys.exit(run_worker(KafkaSettings.from_env(), object(), TOPOLOGY))

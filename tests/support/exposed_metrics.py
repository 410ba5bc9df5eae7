"""What guards, workers and recorders expose to Prometheus, what rules record, and what queries ask for beyond that."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from trustfold.guard.metrics import FAMILIES
from trustfold.history.recorder import PartitionRecorder
from trustfold.projections.incidents import NEEDED as INCIDENTS
from trustfold.recording.recording_metrics import RecordingCollector
from trustfold.recording.status import STATES as RECORDING_STATES
from trustfold.recording.status import RecordingStatus
from trustfold.schemas.tool_envelopes import ResultStatus
from trustfold.schemas.vocabulary import BreakerState
from trustfold.streams.kafka.engine import WorkerEngine
from trustfold.streams.kafka.exposition import STATES, WorkerCollector
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.metrics import LaneMetrics
from trustfold.streams.kafka.stages import KafkaTopology

SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
RULES = Path(__file__).parents[2] / "ops" / "prometheus" / "rules.yml"
OF_PROMETHEUS = {"up": {"job", "instance"}, "process_start_time_seconds": {"job", "instance"}}

VALUES = {
    "status": set(ResultStatus),
    "scope": {"called", "cached", "refused"},
    "from_state": set(BreakerState),
    "to_state": set(BreakerState),
    "age": {"fresh", "stale"},
    "effect": {"read", "write"},
    "result": {"published", "refused", "dropped", "failed", "undelivered"},
    "job": {"trustfold-workers", "trustfold-recorders", "trustfold-guards"},
    "state": {*BreakerState, *STATES, *RECORDING_STATES, *INCIDENTS},
}
"""Labels whose values are known beforehand."""

_SELECTOR = re.compile(
    r"(?<![\w:])((?:trustfold_|tool:trustfold_)\w+(?::\w+)?|up|process_start_time_seconds)(?![\w(:])(\{[^}]*\})?"
)
_MATCHER = re.compile(r"(\w+)\s*(=~|!~|!=|=)\s*\"((?:[^\"\\]|\\.)*)\"")
_GROUPED = re.compile(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)")


@cache
def samples() -> dict[str, set[str]]:
    """Names of all samples of guards, workers and recorders, and of recorded ratios, with the labels that each has."""
    # Of `up`, by tests/web/test_metrics.py and tests/web/test_webhook.py
    found = OF_PROMETHEUS | {"trustfold_incidents": {"state"}, "trustfold_webhook_up": set()}
    for family in FAMILIES:
        base = family.name.removesuffix("_total")
        found |= _with_suffixes(base, family.kind, set(family.labels))
    engine = WorkerEngine(KafkaSettings(), None, KafkaTopology((), lambda *_: None), LaneMetrics())
    engine.watch.answered_at, engine.metrics.rules = 1.0, "fingerprint"  # families that are left out while unknown
    with TemporaryDirectory() as folder:
        recorder = PartitionRecorder(Path(folder))
        recorded = RecordingStatus(recorder)
        recorded.watch = engine.watch
        for metric in (*WorkerCollector(engine).collect(), *RecordingCollector(recorded).collect()):
            found |= _with_suffixes(metric.name, metric.type, set(metric._labelnames))
        recorder.close()
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    return found | {rule["record"]: {"tool"} for rule in rules if "record" in rule}


def promtool(*words: str | Path) -> str:
    """What promtool says when it is content; skips where there is none."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool here (Debian: apt-get install prometheus)")
    done = subprocess.run([found, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _with_suffixes(base: str, kind: str, labels: set[str]) -> dict[str, set[str]]:
    names = {base + suffix: set(labels) for suffix in SUFFIXES.get(kind, ("",))}
    if kind == "histogram":
        names[base + "_bucket"].add("le")
    return names


def selected(query: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Each metric that a query names, with its matchers: label, operator, text."""
    for name, matchers in _SELECTOR.findall(query):
        yield name, _MATCHER.findall(matchers)


def grouped(query: str) -> set[str]:
    """Labels by which a query groups and joins."""
    return {label.strip() for labels in _GROUPED.findall(query) for label in labels.split(",") if label.strip()}


def faults(query: str) -> list[str]:
    """What a query asks for and nobody exposes: metrics, labels of them, values of labels."""
    known, found, labels_in_play = samples(), [], {"job", "instance"}
    for name, matchers in selected(query):
        if name not in known:
            found.append(f"{name} is not exposed")
            continue
        labels_in_play |= known[name]
        for label, operator, text in matchers:
            if label not in known[name] | {"job", "instance"}:
                found.append(f"{name} has no label {label}")
            elif label in VALUES and operator in {"=", "!="} and text not in VALUES[label]:
                found.append(f"{label} of {name} is never {text}")
            elif label in VALUES and operator in {"=~", "!~"}:
                found += [f"{label} of {name} is never {one}" for one in text.split("|") if one not in VALUES[label]]
    return found + [f"nothing here has the label {label}" for label in grouped(query) - labels_in_play]

"""Settings of the Kafka engine, read once at the start.

Every default has its reason beside it. The environment variables are the worker's whole configuration; the rules of the
folds are in `rules.rules`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ...errors import ConfigError
from .security import BrokerSecurity

STORES = ("memory", "rocksdb")
LOG_FORMATS = ("text", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Connection and tuning of a worker."""

    bootstrap: str = "localhost:9092"  # `host:port`, several separated by commas
    # consumer group, and prefix of the changelog topic names. Another id is another deployment.
    app_id: str = "trustfold"
    topic_prefix: str = "trustfold."  # prefix of every topic name
    # number of partitions of every source topic and changelog. Cannot change later: keys would move.
    partitions: int = 12
    replication: int = 0  # copies of each created topic; 0 means three, or the number of brokers if smaller
    # seconds between checkpoints, and so the work repeated after a crash; half a second keeps that small and still
    # writes a hot key once, not thousands of times
    checkpoint_interval: float = 0.5
    commit_interval: float = 1.0  # seconds between offset commits; never ahead of a checkpoint
    # most records taken from the consumer at once. 500 records of 30 us each hold the loop for 15 ms, inside the
    # latency target of 20; larger polls gain under five per cent.
    poll_records: int = 500
    # most bytes of a partition in one fetch; also the most memory a fetched partition may hold
    fetch_bytes: int = 4 * 1024 * 1024
    # seconds without a heartbeat after which the group gives the partitions away. Eight replace a killed worker within
    # 12 s and outlast a pause of some seconds (brokers refuse less than six).
    session_timeout: float = 8.0
    rebalance_timeout: float = 30.0  # seconds that a member may take to give up its partitions in a rebalance
    # seconds that the last checkpoint before a revocation may take; unsaved work is repeated
    revoke_timeout: float = 8.0
    # seconds within which a stopping or failed worker ends, including the last checkpoint and leaving the group
    stop_timeout: float = 9.0
    # seconds without an acknowledgement, while brokers answer, after which the worker restarts from its last checkpoint
    # with new connections. Time without a broker does not count.
    checkpoint_timeout: float = 120.0
    # seconds of log time that a stage may be ahead of one that reads its outputs. Less makes a small backlog slower:
    # each step waits for the brokers.
    stage_lead: float = 1.0
    worker_lead: float = 60.0  # seconds of log time that a worker may be ahead of another that is behind its log end
    # longest time, in seconds, that a silent partition, or a worker that does not catch up, holds back the rest
    order_wait: float = 10.0
    record_timeout: float = 5.0  # seconds of processor time that one record may take before it ends the worker
    # name of this worker in the group (static membership): a worker that restarts under the same name within the
    # session timeout gets its partitions back without a rebalance. Empty is off.
    instance_id: str = ""
    # `memory` (state in the process, read back from the changelog at each start) or `rocksdb` (on disk)
    store: str = "memory"
    # where RocksDB keeps its files, and where records that ended a worker are noted; one per worker on the same machine
    # for RocksDB
    data_dir: Path = Path("trustfold-data")
    # decoded states kept between checkpoints, shared by all partitions; others are decoded again on use. At about five
    # kilobytes each the default bounds them to 500 MB.
    live_states: int = 100_000
    # port of `/healthz`, `/readyz` and `/metrics` on `web_bind`; None is off. It has no authentication.
    web_port: int | None = None
    web_bind: str = "127.0.0.1"  # address of that port
    log_level: str = "INFO"  # level of the worker's own log
    log_format: str = "text"  # `text`, or `json` for one JSON object a line
    trace_ratio: float = 0.0  # share of the publishers' traces that get spans of the worker, from 0 (off) to 1
    security: BrokerSecurity = field(default_factory=BrokerSecurity)  # protocol and credentials

    def __post_init__(self) -> None:
        """Validate the settings."""
        if not self.servers:
            raise ConfigError("no broker address; set TRUSTFOLD_BROKER to host:port")
        _check_ports(self.servers)
        for name, known in (("store", STORES), ("log_format", LOG_FORMATS)):
            if (value := getattr(self, name)) not in known:
                raise ConfigError(f"{name.replace('_', ' ')} {value!r} is unknown; use one of {', '.join(known)}")
        if not self.app_id or self.app_id.strip() != self.app_id:
            raise ConfigError(f"app id {self.app_id!r} must be a name without blanks around it")
        for name in ("partitions", "poll_records", "fetch_bytes", "live_states"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in (
            "checkpoint_interval", "commit_interval", "session_timeout", "rebalance_timeout", "revoke_timeout",
            "stop_timeout", "checkpoint_timeout", "stage_lead", "worker_lead", "order_wait",
        ):  # fmt: skip
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be a number of seconds above 0")
        _check_ratio(self.trace_ratio)
        if self.replication < 0:
            raise ConfigError(f"replication is {self.replication}; it must be a number of copies, or 0 for the default")
        if self.log_level not in logging.getLevelNamesMapping():
            raise ConfigError(f"log level {self.log_level!r} is unknown; use DEBUG, INFO, WARNING or ERROR")
        if self.revoke_timeout >= self.rebalance_timeout:
            raise ConfigError(
                f"revoke_timeout ({self.revoke_timeout} s) must be below rebalance_timeout "
                f"({self.rebalance_timeout} s), or the group removes the worker during its checkpoint"
            )

    @property
    def servers(self) -> list[str]:
        """Return the bootstrap addresses as a list."""
        return [server.strip() for server in self.bootstrap.split(",") if server.strip()]

    def topic(self, name: str) -> str:
        """Return the real name of a catalogue topic."""
        return self.topic_prefix + name

    def changelog(self, stage: str) -> str:
        """Return the real name of a stage's changelog topic; the format is Faust's."""
        return f"{self.app_id}-{stage}-changelog"

    def client_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments common to all aiokafka clients."""
        return {"bootstrap_servers": self.servers, **self.security.client_arguments()}

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """Create settings from TRUSTFOLD_* variables; `overrides` (by field name) win, None leaves a value alone.

        Raises:
            ConfigError: a variable does not parse, or a value is invalid.
        """
        environ = os.environ if environ is None else environ
        security = {key: _read(environ, name, parse) for key, (name, parse) in _SECURITY.items() if environ.get(name)}
        values = {key: _read(environ, name, parse) for key, (name, parse) in _SETTINGS.items() if environ.get(name)}
        if security:
            values["security"] = BrokerSecurity(**security)
        values |= {key: value for key, value in overrides.items() if value is not None}
        return cls(**values)


def _boolean(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return known[text.strip().lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


def _check_ports(servers: list[str]) -> None:
    """Reject invalid ports; without a port Kafka's default is used, and `fe80::1` is an address as a whole."""
    for server in servers:
        _, colon, port = server.rpartition("]")[2].partition(":")
        number = int(port) if port.isascii() and port.isdecimal() else 0
        if colon and not 0 < number < 65_536 and ("]" in server or server.count(":") == 1):
            raise ConfigError(f"broker address {server!r}: the port must be a number from 1 to 65535")


def _check_ratio(ratio: float) -> None:
    """Reject a ratio outside 0 to 1."""
    if not 0 <= ratio <= 1:
        raise ConfigError(f"trace_ratio is {ratio}; it must be a share from 0 to 1")


def _port(text: str) -> int | None:
    return None if text.strip().lower() in {"off", "none", "0"} else int(text)


_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "bootstrap": ("TRUSTFOLD_BROKER", str),
    "app_id": ("TRUSTFOLD_APP_ID", str),
    "topic_prefix": ("TRUSTFOLD_TOPIC_PREFIX", str),
    "partitions": ("TRUSTFOLD_PARTITIONS", int),
    "replication": ("TRUSTFOLD_REPLICATION", int),
    "checkpoint_interval": ("TRUSTFOLD_CHECKPOINT_INTERVAL", float),
    "commit_interval": ("TRUSTFOLD_COMMIT_INTERVAL", float),
    "poll_records": ("TRUSTFOLD_POLL_RECORDS", int),
    "fetch_bytes": ("TRUSTFOLD_FETCH_BYTES", int),
    "session_timeout": ("TRUSTFOLD_SESSION_TIMEOUT", float),
    "rebalance_timeout": ("TRUSTFOLD_REBALANCE_TIMEOUT", float),
    "revoke_timeout": ("TRUSTFOLD_REVOKE_TIMEOUT", float),
    "stop_timeout": ("TRUSTFOLD_STOP_TIMEOUT", float),
    "checkpoint_timeout": ("TRUSTFOLD_CHECKPOINT_TIMEOUT", float),
    "stage_lead": ("TRUSTFOLD_STAGE_LEAD", float),
    "worker_lead": ("TRUSTFOLD_WORKER_LEAD", float),
    "order_wait": ("TRUSTFOLD_ORDER_WAIT", float),
    "record_timeout": ("TRUSTFOLD_RECORD_TIMEOUT", float),
    "instance_id": ("TRUSTFOLD_INSTANCE_ID", str),
    "store": ("TRUSTFOLD_STORE", str),
    "data_dir": ("TRUSTFOLD_DATA_DIR", Path),
    "live_states": ("TRUSTFOLD_LIVE_STATES", int),
    "web_port": ("TRUSTFOLD_WEB_PORT", _port),
    "web_bind": ("TRUSTFOLD_WEB_BIND", str),
    "log_level": ("TRUSTFOLD_LOG_LEVEL", str),
    "log_format": ("TRUSTFOLD_LOG_FORMAT", str),
    "trace_ratio": ("TRUSTFOLD_TRACE_RATIO", float),
}

_SECURITY: dict[str, tuple[str, Callable[[str], Any]]] = {
    "protocol": ("TRUSTFOLD_SECURITY_PROTOCOL", str),
    "mechanism": ("TRUSTFOLD_SASL_MECHANISM", str),
    "username": ("TRUSTFOLD_SASL_USERNAME", str),
    "password": ("TRUSTFOLD_SASL_PASSWORD", str),
    "ca_location": ("TRUSTFOLD_SSL_CA_LOCATION", Path),
    "certificate_location": ("TRUSTFOLD_SSL_CERTIFICATE_LOCATION", Path),
    "key_location": ("TRUSTFOLD_SSL_KEY_LOCATION", Path),
    "allow_plaintext_sasl": ("TRUSTFOLD_ALLOW_PLAINTEXT_SASL", _boolean),
}

# Names of the variables that `from_env` reads
ENVIRONMENT: tuple[str, ...] = tuple(name for name, _ in (*_SETTINGS.values(), *_SECURITY.values()))


def _read(environ: Mapping[str, str], name: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(environ[name])
    except ValueError as error:
        shown = "***" if "PASSWORD" in name else repr(environ[name])
        raise ConfigError(f"{name} is {shown}: {error}") from error

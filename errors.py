"""The error tree: whose fault it is, and what to do next.

`EventRejected` is the publisher's fault, `ConfigError` the operator's, `StateIncompatible` the deployment's;
`TargetUnreachable` and `TookTooLong` are those of a server or of the way to it.
"""

from __future__ import annotations

from enum import StrEnum

# Address of the pages that messages name: whoever reads them may have no checkout (pyproject.toml, Documentation)
DOCS = "https://github.com/trustfold/trustfold/blob/main/docs"


class RejectReason(StrEnum):
    """Reason why a record became a dead letter. The codes are stable: they are metric labels and search terms.

    One code per kind of bad input: docs/design/contracts.md#bad-input. `not_yours` comes from a server alone: the event
    is about the session or workspace of somebody else. `internal_error` is the only one that is not the publisher's
    fault: a fold has a bug, and the record can be republished after a fix.
    """

    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    INVALID_UTF8 = "invalid_utf8"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    BAD_VALUE = "bad_value"
    UNKNOWN_TYPE = "unknown_type"
    UNSUPPORTED_VERSION = "unsupported_version"
    BAD_LENGTH = "bad_length"
    BAD_NUMBER = "bad_number"
    TIME_OUT_OF_RANGE = "time_out_of_range"
    NULL_VALUE = "null_value"
    SCHEMA_REGISTRY_FRAMING = "schema_registry_framing"
    NOT_YOURS = "not_yours"
    INTERNAL_ERROR = "internal_error"


class TrustfoldError(Exception):
    """Base of every error that trustfold raises on purpose."""


class EventRejected(TrustfoldError):
    """A record that cannot be processed; the worker turns it into a dead letter and continues.

    Attributes:
        reason: stable code.
        path: JSON path of the fault, e.g. `$.error.http_status`; `$` for the record as a whole.
        message: what is wrong and what to do about it.
    """

    def __init__(self, reason: RejectReason, path: str, message: str) -> None:
        super().__init__(reason, path, message)
        self.reason = reason
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{self.reason} at {self.path}: {self.message}"


class ConfigError(TrustfoldError):
    """An invalid setting or rule; the message names it and the accepted values."""


def add_extra(*extras: str) -> str:
    """Say which extras are missing and where it is written how to add them."""
    return f"add the extra {','.join(extras)}: {DOCS}/install.md#extras"


class NotInstalled(ConfigError):
    """A part whose libraries are not installed; the message names the extra that brings the missing one."""

    def __init__(self, part: str, missing: ImportError) -> None:
        extra = EXTRAS.get((missing.name or "").partition(".")[0], "all")
        super().__init__(f"{part} is not installed here ({missing}); {add_extra(extra)}")


# Modules of the extras and the extra that brings each (pyproject.toml)
EXTRAS = {
    "aiokafka": "kafka",
    "faust": "kafka",
    "rocksdict": "rocksdb",
    "duckdb": "history",
    "jinja2": "web",
    "starlette": "web",
    "uvicorn": "web",
    "prometheus_client": "metrics",
    "opentelemetry": "otel",
    "redis": "redis",
    "mcp": "mcp",
    "anyio": "mcp",  # what its client imports first
}


class TargetUnreachable(TrustfoldError):
    """Kafka or a running `up` does not answer at its address; the message names it."""


class TookTooLong(TrustfoldError):
    """No answer came in time; the message says who was asked and how long."""


class StateIncompatible(TrustfoldError):
    """Stored state that this version cannot read; the message says which version wrote it and what to do."""

"""Classification of faults: temporary, fixed by a restart from the last checkpoint, or fatal; with remedies."""

from __future__ import annotations

import asyncio
import re

from aiokafka import errors

from ...errors import DOCS, TrustfoldError

_PASSING = (
    errors.BrokerNotAvailableError,
    errors.CommitFailedError,
    errors.IllegalGenerationError,
    errors.InvalidProducerEpoch,
    errors.InvalidProducerIdMapping,
    errors.KafkaTimeoutError,
    errors.KafkaUnavailableError,
    errors.OutOfOrderSequenceNumber,
    errors.ProducerClosed,
    errors.ProducerFenced,
    errors.RebalanceInProgressError,
    errors.ReplicaNotAvailableError,
    errors.UnknownError,
    errors.UnknownMemberIdError,
    errors.UnknownProducerId,
    ConnectionError,
    TimeoutError,
    asyncio.IncompleteReadError,
)
"""Faults without aiokafka's `retriable` that new connections, a new producer id or a new membership fix.

`UnknownError` is a fault of the broker itself, as when its disk is full; the number of restarts is limited.
"""

_REFUSED = (
    errors.AuthenticationFailedError,
    errors.AuthenticationMethodNotSupported,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)

_REMEDIES: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    (
        _REFUSED,
        "the brokers refuse the credentials: renew TRUSTFOLD_SASL_PASSWORD and start the worker again",
    ),
    (
        (errors.TopicAuthorizationFailedError,),
        f"give the worker's user Read and Write on this topic ({DOCS}/operating.md#rights)",
    ),
    (
        (errors.GroupAuthorizationFailedError,),
        f"give the worker's user Read on this consumer group ({DOCS}/operating.md#rights)",
    ),
    (
        (errors.ClusterAuthorizationFailedError, errors.TransactionalIdAuthorizationFailed),
        f"give the worker's user IdempotentWrite on the cluster ({DOCS}/operating.md#rights)",
    ),
    (
        (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError),
        "raise max.message.bytes of the topic, or message.max.bytes of the brokers",
    ),
    (
        (errors.InvalidTimestampError,),
        "the brokers refuse records from their future: this machine's clock is ahead of the brokers' (set it by NTP)",
    ),
    (
        (errors.InvalidSessionTimeoutError,),
        "set TRUSTFOLD_SESSION_TIMEOUT to what the brokers allow (group.min.session.timeout.ms and its maximum)",
    ),
    (
        (errors.InconsistentGroupProtocolError,),
        "other clients use this consumer group: give them, or the workers, another TRUSTFOLD_APP_ID",
    ),
    (
        (errors.IncompatibleBrokerVersion, errors.UnsupportedVersionError, errors.UnrecognizedBrokerVersion),
        "the brokers do not speak the protocol versions that this client needs: upgrade them, or trustfold",
    ),
)

_OURS = "a fault of trustfold or of this machine; nothing that is not durable was acknowledged: start the worker again"


class WorkerFault(TrustfoldError):
    """Permanent fault of the cluster; the message names the topic and the remedy."""


def is_passing(error: BaseException) -> bool:
    """Whether the worker may restart from its last checkpoint instead of ending."""
    if isinstance(error, TrustfoldError):
        return False
    if isinstance(error, _PASSING):
        return True
    if type(error) is errors.KafkaError:  # aiokafka raises this for a background task that failed
        return "batch delivery" in str(error)
    return isinstance(error, errors.KafkaError) and bool(error.retriable)


def is_refusal(error: BaseException) -> bool:
    """Whether brokers answered and rejected the credentials."""
    return isinstance(error, _REFUSED)


def is_expected(error: BaseException) -> bool:
    """Whether the message suffices, without a traceback."""
    return isinstance(error, TrustfoldError | errors.KafkaError | OSError)


def describe(error: BaseException) -> str:
    """Describe an error in one line: what happened and what to do."""
    text = " ".join(str(error).split())
    if isinstance(error, TrustfoldError):
        return text
    name = type(error).__name__
    text = re.sub(rf"^\[Error -?\d+\] {name}(: )?", "", text)  # aiokafka's message repeats the name
    message = f"{name}: {text}" if text else name
    remedy = next((remedy for kinds, remedy in _REMEDIES if isinstance(error, kinds)), _OURS)
    return f"{message}; {remedy}"

"""Diagnosis of failed connections to brokers: addresses, TLS, credentials, rights; each with a remedy.

aiokafka reports every failed start as unreachable brokers. A second attempt on a plain connection finds the reason.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from aiokafka import errors
from aiokafka.conn import collect_hosts, create_conn

from ...errors import DOCS, ConfigError

if TYPE_CHECKING:
    from .kafka_settings import KafkaSettings

PATIENCE_S = 5.0  # Seconds for a broker to accept a connection and answer
SHOWN = 3  # Number of topics named in an error

# Exceptions of a failed connection
CONNECTION_FAULTS = (OSError, errors.KafkaError, TimeoutError, asyncio.IncompleteReadError)

RIGHTS = f"`trustfold topics acls` prints the commands ({DOCS}/operating.md#rights)"

# Remedy for a broker that accepts a connection and closes it at the first request
WANTS_SASL = "it may want SASL (TRUSTFOLD_SECURITY_PROTOCOL), or be starting; look at its log"

# Errors for a missing right
RIGHTS_ERRORS = (
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailed,
)


T = TypeVar("T")


class BrokerDenied(ConfigError):
    """A broker answered and rejected this user, or this user does not trust its certificate."""


def reason(error: BaseException) -> tuple[str, str]:
    """Return what failed on a connection, and the remedy, as text that follows the broker's address."""
    if isinstance(error, TimeoutError):
        way = "a firewall, or TLS on one side only: is TRUSTFOLD_SECURITY_PROTOCOL right?"
        return f"no answer within {PATIENCE_S:g} s", f"look for {way}"
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = "set TRUSTFOLD_SSL_CA_LOCATION to its authority, and name the broker as its certificate does"
        return f"its certificate is not trusted: {error.verify_message}", advice
    if isinstance(error, ssl.SSLError):
        advice = "this port may speak no TLS, or want a certificate of the client: look at TRUSTFOLD_SECURITY_PROTOCOL"
        return f"no TLS connection: {error.reason or error}", advice
    if isinstance(
        error,
        (ConnectionResetError, ConnectionAbortedError, errors.KafkaConnectionError, asyncio.IncompleteReadError),
    ):
        advice = "the port may speak no TLS, or want it, or SASL: look at TRUSTFOLD_SECURITY_PROTOCOL, and at its log"
        return f"closes the connection ({_message_of(error)})", advice
    if isinstance(error, OSError):
        return f"cannot be reached: {error.strerror or error}", "start it, or correct TRUSTFOLD_BROKER"
    advice = "correct TRUSTFOLD_SASL_USERNAME, _PASSWORD or _MECHANISM; it must speak SASL at this port"
    return f"refuses the connection: {_message_of(error)}", advice


class _TrackingLoop(asyncio.SelectorEventLoop):
    """Event loop that tracks the connections made on it."""

    def __init__(self) -> None:
        super().__init__()
        self._made: WeakSet[asyncio.BaseTransport] = WeakSet()

    async def create_connection(self, *args: Any, **more: Any) -> Any:
        made = await super().create_connection(*args, **more)
        self._made.add(made[0])
        return made

    async def abort_connections(self) -> None:
        """Abort open connections."""
        for transport in list(self._made):
            assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - connections of TCP can be written to
            with suppress(AttributeError):  # before Python 3.11.4, of one over TLS that has been closed
                transport.abort()
        for _ in range(3):  # the transport below TLS closes one loop turn later
            await asyncio.sleep(0)


def run_client(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that uses Kafka on a new event loop, and leave no connection open.

    aiokafka does not wait until a refused connection is closed; over TLS closing needs an answer of the broker.
    """
    with asyncio.Runner(loop_factory=_TrackingLoop) as runner:
        try:
            return runner.run(work)
        finally:
            loop = runner.get_loop()
            assert isinstance(loop, _TrackingLoop)  # noqa: S101 - made above
            runner.run(loop.abort_connections())


async def unreachable(settings: KafkaSettings) -> ConfigError:
    """Return the error of a start that reached no broker: `BrokerDenied` if one answers, else unreachable."""
    arguments = settings.client_arguments()
    for host, port, _ in collect_hosts(arguments.pop("bootstrap_servers"), randomize=False):
        try:
            async with asyncio.timeout(PATIENCE_S):
                connection = await create_conn(host, port, **arguments)
        except CONNECTION_FAULTS as error:
            if isinstance(error, ssl.SSLError) or _answered(error):
                found, advice = reason(error)
                return BrokerDenied(f"broker {host}:{port} cannot be used: {found}; {advice}")
        else:
            connection.close()
            return BrokerDenied(f"broker {host}:{port} accepts connections and answers no request: {WANTS_SASL}")
    return ConfigError(
        f"no broker answers at {settings.bootstrap}; is it running, and is --bootstrap or TRUSTFOLD_BROKER right?"
    )


def _answered(error: BaseException) -> bool:
    return isinstance(error, errors.KafkaError) and not isinstance(error, errors.KafkaConnectionError)


def hidden_topics_error(settings: KafkaSettings, topics: Sequence[str]) -> BrokerDenied:
    """Return the error for topics that this user may not describe."""
    rest = f" and {len(topics) - SHOWN} more" if len(topics) > SHOWN else ""
    names = f"topic{'s' * (len(topics) > 1)} {', '.join(topics[:SHOWN])}{rest}"
    return BrokerDenied(f"{user_of(settings)} may not see {names}: give it the rights of its role; {RIGHTS}")


def user_of(settings: KafkaSettings) -> str:
    """Return the user, for messages."""
    return f"user {settings.security.username}" if settings.security.username else "this user"


def missing_right_error(settings: KafkaSettings, error: BaseException) -> BrokerDenied:
    """Return the error for a missing right."""
    return BrokerDenied(
        f"the brokers deny {user_of(settings)} a right: {_message_of(error)}; give it the rights of its role: {RIGHTS}"
    )


def _message_of(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__

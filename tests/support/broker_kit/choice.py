"""Which broker the tests get: the first way that works, and why the ones before it did not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

REQUIRE_VARIABLE = "TRUSTFOLD_REQUIRE_BROKER"


class Unavailable(Exception):
    """This way gives no broker here; the message says why. The next way is tried."""


class NoBroker(Exception):
    """No way gives a broker, or the one asked for by name does not answer; the message says what to do."""


def _nothing() -> None:
    """Close nothing: the broker is somebody else's."""


@dataclass
class Broker:
    """A broker to test with."""

    bootstrap: str
    """Where clients connect: `host:port`, or several with commas."""
    kind: str
    """`given`, `container`, `local` or `mock`."""
    description: str
    """For people, e.g. "Apache Kafka 4.3.1 from its jars at 127.0.0.1:25001"."""
    durable: bool = True
    """Whether it is a real Kafka that keeps its log; the mock is none and keeps nothing."""
    close: Callable[[], None] = _nothing
    """End it, if it is ours. May be called twice."""
    make_topic: Callable[[str, int], None] | None = None
    """How to create a topic (name, partitions) where the broker cannot do it by Kafka's protocol."""
    passed_over: list[str] = field(default_factory=list)
    """Why each way that comes before this one was not taken."""


class Way(Protocol):
    """One way to get a broker."""

    kind: str
    durable: bool

    def missing(self) -> str | None:
        """Say quickly, starting nothing, why this way cannot work here; None when it looks possible."""

    def open(self) -> Broker:
        """Get the broker and wait until it answers. Raises Unavailable, or NoBroker to end the search."""


def required(environment: Mapping[str, str]) -> bool:
    """Whether a real broker must be there: TRUSTFOLD_REQUIRE_BROKER is set, and not to 0, no or false."""
    return environment.get(REQUIRE_VARIABLE, "").strip().lower() not in {"", "0", "no", "false"}


def choose(ways: Sequence[Way], *, require: bool) -> Broker:
    """Open the first way that works; with `require`, only ways to a real, durable broker count.

    Raises NoBroker with the reason of every way.
    """
    reasons: list[str] = []
    for way in ways:
        try:
            reason = _objection(way, require=require)
            if reason is None:
                broker = way.open()
                broker.passed_over = reasons
                return broker
        except Unavailable as error:
            reason = str(error)
        reasons.append(f"{way.kind}: {reason}")
    demand = f"{REQUIRE_VARIABLE} asks for a real broker, and none" if require else "no broker"
    raise NoBroker(
        f"{demand} can be had here. Remove one of these obstacles:\n" + "\n".join(f"  {reason}" for reason in reasons)
    )


def outlook(ways: Sequence[Way], *, require: bool) -> str:
    """Say in one line which way choose() would try first, and why not an earlier one; starts nothing."""
    reasons: list[str] = []
    for way in ways:
        reason = _objection(way, require=require)
        if reason is None:
            return f"{way.kind}, when a test asks for it" + (f" ({'; '.join(reasons)})" if reasons else "")
        reasons.append(f"no {way.kind}: {reason}")
    return "; ".join(reasons)


def _objection(way: Way, *, require: bool) -> str | None:
    if require and not way.durable:
        return f"does not count, because {REQUIRE_VARIABLE} is set"
    return way.missing()

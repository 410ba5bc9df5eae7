"""The brokers' clock, for which aiokafka has no request."""

import pytest
from broker_kit import Broker
from outage_kit import administer
from trustfold.streams.kafka.broker_queries import clock_of

pytestmark = pytest.mark.durable_broker


def test_the_brokers_clock_is_ours(broker: Broker) -> None:
    """On the same machine both clocks are the same, within what the question took."""
    clock = administer(broker.bootstrap, clock_of)
    assert abs(clock.ahead_s) <= clock.uncertain_s + 0.5
    assert clock.uncertain_s < 5

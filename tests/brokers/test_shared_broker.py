"""The processes of a parallel run use one broker, which ends when none of them needs it any more."""

import threading
from pathlib import Path

import pytest
from broker_kit import Broker, NoBroker
from broker_kit.shared import share


def never() -> Broker:
    """Fail: a broker was started though there was one."""
    raise AssertionError("a second broker was started")


def test_the_second_process_takes_the_broker_of_the_first(tmp_path: Path) -> None:
    """It hears all that there is to say about it, and its own end does not end the broker."""
    ended: list[str] = []
    mine = Broker("h:1", "local", "Kafka", close=lambda: ended.append("broker"), passed_over=["given: not set"])
    first = share(tmp_path, lambda: mine)
    second = share(tmp_path, never)
    for used in (first, second):
        assert (used.bootstrap, used.kind, used.description) == ("h:1", "local", "Kafka")
        assert used.durable
        assert used.passed_over == ["given: not set"]
    second.close()
    assert ended == []
    first.close()
    first.close()  # harmless
    assert ended == ["broker"]


def test_the_first_process_waits_for_the_others(tmp_path: Path) -> None:
    """Whoever started the broker and is done first keeps it for those who still use it."""
    order: list[str] = []
    first = share(tmp_path, lambda: Broker("h:1", "local", "Kafka", close=lambda: order.append("broker")))
    second = share(tmp_path, never)
    closing = threading.Thread(target=first.close)
    closing.start()
    closing.join(0.2)
    order.append("second")
    second.close()
    closing.join()
    assert order == ["second", "broker"]


def test_a_start_that_failed_is_tried_again(tmp_path: Path) -> None:
    """The next process hears for itself why there is no broker, or gets one."""

    def fails() -> Broker:
        raise NoBroker("no Java here")

    for _ in range(2):
        with pytest.raises(NoBroker, match="no Java here"):
            share(tmp_path, fails)
    share(tmp_path, lambda: Broker("h:1", "local", "Kafka")).close()


def test_each_process_has_its_own_mock(tmp_path: Path) -> None:
    """The mock has no topics but those that its own process makes."""
    for port in "12":
        assert share(tmp_path, lambda at=f"h:{port}": Broker(at, "mock", "", durable=False)).bootstrap == f"h:{port}"

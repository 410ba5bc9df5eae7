"""Which changelog records count, when more than one worker has written."""

from types import SimpleNamespace
from typing import Any

from trustfold.streams.kafka.changelog import CLAIM_KEY, EpochFilter, epoch_headers


def log(*entries: tuple[str, int]) -> list[Any]:
    """A changelog: ("claim", 0) or (value, epoch) with one key per first letter, offsets from 10 on."""
    records = []
    for offset, (value, epoch) in enumerate(entries, 10):
        if value == "claim":
            records.append(SimpleNamespace(key=CLAIM_KEY, value=b"{}", offset=offset, headers=()))
        else:
            key, state = value[:1].encode(), None if value.endswith("!") else value.encode()
            records.append(SimpleNamespace(key=key, value=state, offset=offset, headers=tuple(epoch_headers(epoch))))
    return records


def states(records: list[Any], epoch: int = 0) -> dict[bytes, bytes | None]:
    """What a reader takes the states to be."""
    return dict(EpochFilter(epoch).read(records).states)


def test_the_owner_of_the_newest_claim_counts() -> None:
    """States written in the epoch of the claim before them count, in log order."""
    assert states(log(("claim", 0), ("a1", 10), ("a2", 10), ("b1", 10))) == {b"a": b"a2", b"b": b"b1"}


def test_a_former_owner_is_ignored() -> None:
    """What a worker writes after somebody else's claim does not count, even where it is the newest of its key."""
    found = EpochFilter().read(log(("claim", 0), ("a1", 10), ("claim", 0), ("a2", 12), ("a1", 10)))
    assert dict(found.states) == {b"a": b"a2"}
    assert found.stale == {b"a"}
    assert found.claims == [10, 12]


def test_a_former_owner_counts_until_the_claim() -> None:
    """What was written before the claim was read by the new owner and stays."""
    assert states(log(("claim", 0), ("a1", 10), ("b1", 10), ("claim", 0), ("a2", 13))) == {b"a": b"a2", b"b": b"b1"}


def test_deletions_obey_the_same_rule() -> None:
    """A stale tombstone deletes nothing, a valid one does."""
    assert states(log(("claim", 0), ("a1", 10), ("claim", 0), ("a!", 10))) == {b"a": b"a1"}
    assert states(log(("claim", 0), ("a1", 10), ("a!", 10))) == {b"a": None}


def test_a_compacted_claim_is_known_by_its_states() -> None:
    """Compaction leaves the newest claim only; an epoch seen on a state fences older ones just as well."""
    found = EpochFilter().read(log(("a2", 8), ("a1", 3)))
    assert dict(found.states) == {b"a": b"a2"}
    assert found.stale == {b"a"}


def test_reading_on_from_a_known_epoch() -> None:
    """A reader that continues in the middle of the log brings the epoch it has reached."""
    reader = EpochFilter(5)
    assert dict(reader.read(log(("a1", 4), ("b1", 5))).states) == {b"b": b"b1"}
    assert reader.epoch == 5


def test_a_record_without_an_epoch_never_counts() -> None:
    """A stranger's record is not a state."""
    record = SimpleNamespace(key=b"a", value=b"x", offset=1, headers=())
    found = EpochFilter().read([record])
    assert not found.states
    assert found.stale == {b"a"}


def test_a_key_written_again_is_no_longer_stale() -> None:
    """Once the owner has covered a stale state, there is nothing left to repair."""
    found = EpochFilter().read(log(("claim", 0), ("claim", 0), ("a1", 10), ("a2", 11)))
    assert dict(found.states) == {b"a": b"a2"}
    assert not found.stale

"""Canonical arguments, which states keep."""

from __future__ import annotations

import tracemalloc

from trustfold.projections.calls import fingerprints


def test_canonical_arguments_take_no_more_than_their_bytes() -> None:
    """What orjson returns occupies 4 KB, however short it is."""
    tracemalloc.start()
    try:
        kept = [fingerprints.canonical({"path": f"{number}"}) for number in range(1_000)]
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(kept) == 1_000
    assert used < 300_000

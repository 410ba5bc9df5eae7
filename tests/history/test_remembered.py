"""What the reader remembers has a bound, whatever the sessions do."""

from __future__ import annotations

from trustfold.history.session_cache import REMEMBERED, RecentCache


def test_what_is_remembered_is_bounded_and_the_latest() -> None:
    """An entry that is read often stays in the cache, however long ago it was stored."""
    cache: RecentCache[int, str] = RecentCache()
    cache.keep(-1, "used")
    for number in range(5 * REMEMBERED):
        cache.keep(number, "new")
        if number % 1000 == 0:
            assert cache.get(-1) == "used"
        assert len(cache._young) + len(cache._old) <= 2 * REMEMBERED + 1
    assert cache.get(0) is None
    assert cache.get(4 * REMEMBERED + 1) == "new"
    assert cache.known(-1, "again")
    assert not cache.known(0, "again")

"""A real Redis for the tests of the guard."""

import os
from collections.abc import Iterator

import pytest
from local_redis import GIVEN, LocalRedis, RedisUnavailable, required


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Redis for all tests of the run; skipped, with the reason, where there is none."""
    if given := os.environ.get(GIVEN):
        yield given
        return
    try:
        server = LocalRedis(tmp_path_factory.mktemp("redis"))
    except RedisUnavailable as reason:
        if required():
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
    yield server.url
    server.stop()

"""Tests of the guard are coroutines, each on a loop of its own; some share a real Redis."""

import asyncio
import inspect
import os
from collections.abc import Iterator
from typing import Any

import pytest
from local_redis import GIVEN, LocalRedis, RedisUnavailable, required


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


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

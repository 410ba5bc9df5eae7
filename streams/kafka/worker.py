"""Runs a worker until it is told to stop or fails.

Faust's own worker command adds a spinner and sets the root logger to DEBUG, which costs a tenth of the throughput, and
ends with a traceback for every reason. This one has three exits: stopped, failed, never started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ...schemas.errors import ConfigError
from .app import TrustfoldApp, make_app
from .protocols import Topology
from .settings import KafkaSettings
from .topics import check_topics
from .tuning import quieten

if TYPE_CHECKING:
    from ...projections.rule_source import RuleSource
    from ...schemas.rules import Rules
    from ..reload import Files
    from .lane import BatchConsumer

log = logging.getLogger(__name__)

STOPPED = 0
"""Exit code: stopped by a signal, after a last checkpoint and commit."""

FAILED = 1
"""Exit code: something went wrong while running; nothing was acknowledged that is not durable. Start it again."""

REFUSED = 2
"""Exit code: settings or topics are wrong, or no broker answered; nothing was started."""

LEAVE_S = 10.0
"""Time for closing connections and threads after the last checkpoint; then the process ends anyway."""

Started = Callable[[TrustfoldApp], None]


def run_worker(
    settings: KafkaSettings,
    rules: Rules | RuleSource | None = None,
    topology: Topology | None = None,
    *,
    files: Files | None = None,
    on_started: Started | None = None,
) -> int:
    """Run a worker in this process until SIGTERM or SIGINT; returns the exit code.

    Args:
        settings: see KafkaSettings.
        rules: rules of the folds, or a source of them; the defaults when None.
        topology: stages to run; trustfold's own when None.
        files: the files behind the rules, to be read again when they change.
        on_started: called once the first recovery is over, on the worker's event loop. Web servers and exporters
            start here; they find the engine and its metrics on the app.

    Returns:
        STOPPED, FAILED or REFUSED; what happened is in the log.
    """
    _start_log(settings.log_level)
    try:
        return asyncio.run(
            _run(settings, partial(make_app, settings, rules, topology, files=files), topology, on_started)
        )
    except ConfigError as error:
        log.critical("not started: %s", error)
        return REFUSED


async def _run(
    settings: KafkaSettings, make: Callable[[], TrustfoldApp], topology: Topology | None, on_started: Started | None
) -> int:
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    log.info("starting as %s on %s", settings.app_id, settings.bootstrap)
    for difference in await check_topics(settings, topology):
        log.warning("%s", difference)
    app = make()
    app.in_worker = True
    failed = asyncio.Event()
    app.engine.on_failure = failed.set
    starting = loop.create_task(_start(app, on_started))
    stop = loop.create_task(asked.wait())
    fault = loop.create_task(failed.wait())
    crash = loop.create_task(app._crashed.wait())
    failing = _failing(starting)
    ends: set[asyncio.Future[Any]] = {stop, fault, crash, failing}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        log.info("stopping%s", "" if stop.done() else " after a failure")
        async with asyncio.timeout(settings.stop_timeout + LEAVE_S):
            await app.stop()
    except TimeoutError:
        log.critical("not everything stopped within %s s; leaving it", settings.stop_timeout + LEAVE_S)
        _leave(FAILED)
    finally:
        for task in (starting, stop, fault, crash):
            task.cancel()
        await asyncio.gather(starting, stop, fault, crash, return_exceptions=True)
        if app._consumer is not None:  # not `consumer`, which would make one
            cast("BatchConsumer", app._consumer).release()
    return FAILED if app.crash_reason is not None or app.engine.failed or failing.done() else STOPPED


async def _start(app: TrustfoldApp, on_started: Started | None) -> None:
    await app.start()  # returns after the first recovery, or when the app is stopped before
    if on_started is not None and not app.should_stop:
        on_started(app)


def _failing(starting: asyncio.Task[None]) -> asyncio.Future[None]:
    """A future that is done when the start fails; a start that succeeds ends nothing."""
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def look(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not failed.done():
            log.critical("start failed", exc_info=task.exception())
            failed.set_result(None)

    starting.add_done_callback(look)
    return failed


def _leave(code: int) -> None:
    with contextlib.suppress(Exception):
        logging.shutdown()
        sys.stdout.flush()
    os._exit(code)


def _start_log(level: str) -> None:
    if not logging.getLogger().handlers:
        logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    quieten(level)

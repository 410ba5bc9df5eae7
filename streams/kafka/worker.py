"""Runs a worker until it is stopped or fails.

Faust's own worker command adds a spinner and sets the root logger to DEBUG, which costs a tenth of the throughput, and
ends with a traceback for every reason. This one returns an exit code, or raises why it was not started. Each end
is reached within `stop_timeout`: every step of a stop has a time limit, enforced by the watchdog (docs/operating.md,
Outages).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..probe_server import ProbeServer
from .access import run_client
from .app import TrustfoldApp, make_app
from .faults import describe, is_expected
from .health import probe_of, probe_port
from .kafka_settings import KafkaSettings
from .logs import start_log
from .records import bounded
from .stages import KafkaTopology
from .topics import TopicDifference, check_topics
from .watchdog import ProcessWatchdog

if TYPE_CHECKING:
    from ...config import RuleFiles
    from ...projections.rule_source import RuleSource
    from ...rules.rules import RuleSet
    from .lane import BatchConsumer

log = logging.getLogger(__name__)

STOPPED = 0  # Exit code: stopped by a signal, in order. Unacknowledged work is repeated from the last checkpoint.
FAILED = 1  # Exit code: a fault while running; everything acknowledged is durable. Start the worker again.


def run_worker(
    settings: KafkaSettings,
    rules: RuleSet | RuleSource | None = None,
    topology: KafkaTopology | None = None,
    *,
    files: RuleFiles | None = None,
    publish_states: bool = False,
) -> int:
    """Run a worker in this process until SIGTERM or SIGINT.

    Args:
        settings: see KafkaSettings.
        rules: rules of the folds, or a source of them; the defaults if None.
        topology: stages to run; trustfold's own if None.
        files: files of the rules, reloaded when they change.
        publish_states: publish all public states of the first assignment again.

    Returns:
        Exit code: STOPPED, or FAILED; the log has the reason.

    Raises:
        TrustfoldError: the settings or topics do not fit, or no broker answers.
        KafkaError, OSError, TimeoutError: the brokers refused or went away while the topics were checked.
    """
    start_log(settings.log_level, settings.log_format)
    watchdog = ProcessWatchdog(settings.stop_timeout, FAILED)

    def make() -> TrustfoldApp:
        app = make_app(settings, rules, topology, files=files)
        app.engine.publish_states = publish_states
        return app

    check = partial(check_topics, settings, topology)
    try:
        with probe_port(settings) as port:
            code = run_client(_run(settings, make, check, port, watchdog))
    finally:
        watchdog.close()
    if code == FAILED:
        watchdog.log_failure()
    return code


async def _run(
    settings: KafkaSettings,
    make: Callable[[], TrustfoldApp],
    check: Callable[[], Coroutine[Any, Any, Sequence[TopicDifference]]],
    port: ProbeServer | None,
    watchdog: ProcessWatchdog,
) -> int:
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    watchdog.start(partial(loop.call_soon_threadsafe, stop_requested.set))
    pulse = loop.create_task(_heartbeat(watchdog))
    stop = loop.create_task(stop_requested.wait())
    log.info("starting as %s on %s", settings.app_id, settings.bootstrap)
    checking = loop.create_task(check())
    await asyncio.wait({checking, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not checking.done():
        watchdog.settle(STOPPED)
        return STOPPED
    for difference in checking.result():
        log.warning("%s", difference)
    app = make()
    app.in_worker = True
    app.engine.budget.start(settings.data_dir / "folds")
    failed = asyncio.Event()
    app.engine.on_failure = failed.set
    if port is not None:
        port.probe = probe_of(app.engine)
    starting = loop.create_task(app.start())  # ends after the first recovery, or when the app is stopped before
    fault = loop.create_task(failed.wait())
    crash = loop.create_task(app._crashed.wait())
    failing = _failing(starting)
    ends: set[asyncio.Future[Any]] = {stop, fault, crash, failing}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    watchdog.arm()
    log.info("stopping%s", "" if stop.done() else " after a failure")
    if not await _stop(app, watchdog, failing):
        watchdog.leave(_code(app, failing))
    for task in (starting, fault, crash, pulse):
        task.cancel()
    await asyncio.wait({starting, fault, crash, pulse}, timeout=1.0)
    if app._consumer is not None:  # `consumer` would create one
        cast("BatchConsumer", app._consumer).release()
    return _code(app, failing)


async def _stop(app: TrustfoldApp, watchdog: ProcessWatchdog, failing: asyncio.Future[None]) -> bool:
    """Stop within the watchdog's time; return whether everything was closed."""
    engine = app.engine
    engine.stopping = True
    if not engine.failed:
        await bounded(engine.stop(), watchdog.left * 0.6, "the last checkpoint")
    if app._consumer is not None:  # as above
        await bounded(cast("BatchConsumer", app._consumer).leave(), watchdog.left / 2, "leaving the group")
    watchdog.reason = engine.reason or (f"{app.crash_reason!r}" if app.crash_reason is not None else "")
    if failing.done():
        watchdog.reason = watchdog.reason or "it could not be started; the lines above say why"
    watchdog.settle(_code(app, failing))
    return await bounded(app.stop(), watchdog.left - 1.0, "closing what is left")


def _code(app: TrustfoldApp, failing: asyncio.Future[None]) -> int:
    return FAILED if app.crash_reason is not None or app.engine.failed or failing.done() else STOPPED


async def _heartbeat(watchdog: ProcessWatchdog) -> None:
    while True:
        watchdog.heartbeat()
        await asyncio.sleep(1.0)


def _failing(starting: asyncio.Task[None]) -> asyncio.Future[None]:
    """Return a future that is done when the start fails; it stays pending after a success."""
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def look(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not failed.done():
            error = cast("BaseException", task.exception())
            log.critical("start failed: %s", describe(error), exc_info=None if is_expected(error) else error)
            failed.set_result(None)

    starting.add_done_callback(look)
    return failed

"""`trustfold up`: runs the embedded engine on this machine with an HTTP server."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from ..config import DEFAULT_DB, DEFAULT_HISTORY, EnvironmentSettings
from ..errors import ConfigError
from ..guard.backends.engine_process import running_at
from ..history.files import place_of, store_source
from ..streams.embedded.engine import EmbeddedEngine
from ..streams.embedded.store import STORE_ID, StoreLocked
from .options import listen_options, rules_options
from .record import recording_beside
from .render import ExitCode, note, note_any

if TYPE_CHECKING:
    import socket

    from ..recording.status import RecordingStatus
    from ..rules.rules import RuleSet
    from ..schemas.settings import SettingsOverrides
    from ..streams.embedded.server import EmbeddedService


@click.command()
@click.option(
    "--store",
    metavar="FILE",
    help=f"Store file; created if missing. [env: TRUSTFOLD_DB; default: {DEFAULT_DB}]",
)
@listen_options
@click.option(
    "--allow-local-orders",
    is_flag=True,
    help="Accept resets, settings and other orders from every program that may publish; else they need "
    "TRUSTFOLD_OPERATOR_TOKEN.",
)
@rules_options
@click.option("--detach", is_flag=True, help="Start this user's server in the background, for `connect`.")
@click.option("--stop", is_flag=True, help="Stop that server.")
@click.option(
    "--history",
    metavar="[DIR]",
    is_flag=False,
    flag_value="",
    help="Record everything as Parquet, too, as `trustfold record` does, and show it on the History pages. "
    f"[DIR: env: TRUSTFOLD_HISTORY; default: {DEFAULT_HISTORY}]",
)
def up(  # noqa: PLR0913 - each is an option of its own
    *,
    store: str | None,
    host: str | None,
    port: int | None,
    allow_local_orders: bool,
    rules_file: str | None,
    policies_file: str | None,
    detach: bool,
    stop: bool,
    history: str | None,
) -> None:
    """Run on this machine without Kafka until Ctrl-C.

    Agents POST events to /v1/events as NDJSON and follow /v1/decisions; acknowledged events survive a power cut.
    Rules and policies are read again when their files change.
    """
    if detach or stop:
        others = (store, host, rules_file, policies_file, allow_local_orders, history is not None, detach and stop)
        _in_background(port, stop=stop, others=any(others) or (stop and port is not None))
        return
    from ..streams.embedded.publishers import read_publishers
    from ..streams.embedded.roles import check_exposure
    from ..streams.embedded.serve import address_of, private_socket, serve
    from ..streams.embedded.server import make_app
    from ..streams.embedded.sign_in import RoleTokens
    from ..web.routes import more_routes
    from ..web.webhook import webhook_of

    temporary = _temporary_folder(settings := EnvironmentSettings.from_env(), store)
    path = Path(temporary.name, "trustfold.sqlite") if temporary else Path(store or settings.db)
    address = host or settings.host
    check_exposure(address, settings.token)
    own = read_publishers(settings.publishers)
    if own and not settings.token:
        raise ConfigError("set TRUSTFOLD_TOKEN beside TRUSTFOLD_PUBLISHERS: without it every program may publish")
    roles = RoleTokens(settings.token, settings.operator_token, allow_local_orders, own)
    files = settings.rule_files(rules_file, policies_file)
    rules, environment = files.load(), settings.environment()
    note_any(settings.switched_off)
    listener, engine = _listening_engine(path, rules, environment, address, settings.port if port is None else port)
    try:
        url = address_of(listener)
        usual = place_of(settings.history, store_source(engine.views.noted(STORE_ID), path))
        engine.announce(url)
        more = partial(
            more_routes, user=settings.user, history=Path(history or usual), webhook=webhook_of(settings, url)
        )
        app = make_app(engine, path, roles=roles, files=files, more=more)
    except BaseException:
        engine.close()
        raise
    started = f"trustfold is up at {url}, store {path}; Ctrl-C stops it\nSee what it decides: {url}/"
    if not settings.operator_token and not allow_local_orders:
        started += "\nIt takes no orders (reset, approve, settings): start it with TRUSTFOLD_OPERATOR_TOKEN, and give "
        started += "your commands the same, or with --allow-local-orders"
    with ExitStack() as beside:
        if history is not None:
            _count(app.state.service, beside.enter_context(recording_beside(path, Path(history or usual))))
        stopped = serve(
            app,
            listener,
            lambda: note(started),
            beside.enter_context(private_socket(path)),
        )
    if temporary:
        temporary.cleanup()
        note("stopped; nothing is kept, because of TRUSTFOLD_PERSIST or TRUSTFOLD_SESSION_ONLY")
    else:
        note("stopped; all acknowledged events are in the store")
    if stopped is signal.SIGINT:
        click.get_current_context().exit(ExitCode.INTERRUPTED)


def _temporary_folder(settings: EnvironmentSettings, store: str | None) -> TemporaryDirectory[str] | None:
    """Folder of a store that is not kept; None if it is."""
    if settings.persist and not settings.session_only:
        return None
    if store:
        raise ConfigError(
            "--store keeps nothing under TRUSTFOLD_PERSIST=false or TRUSTFOLD_SESSION_ONLY; unset one of them"
        )
    return TemporaryDirectory(prefix="trustfold-")


def _listening_engine(
    path: Path, rules: RuleSet, environment: SettingsOverrides, host: str, port: int
) -> tuple[socket.socket, EmbeddedEngine]:
    """Listen, then open or create the store: who cannot listen leaves no empty store behind."""
    from ..streams.embedded.serve import listen
    from .service import UserService

    try:
        listener = listen(host, port)
    except ConfigError:
        if (found := running_at(path)) is not None:
            raise StoreLocked(path, str(found[0]), found[1]) from None
        if (own := UserService().running()) is not None and own[1].endswith(f":{port}"):
            raise ConfigError(
                f"this user's server runs at {own[1]}; `trustfold up --stop` stops it, --port chooses another port"
            ) from None
        raise
    try:
        return listener, EmbeddedEngine.open(path, rules, environment)
    except BaseException:
        listener.close()
        raise


def _count(service: EmbeddedService, status: RecordingStatus) -> None:
    """Add a recording's metrics to the server's."""
    try:
        from ..recording.recording_metrics import RecordingCollector
    except ImportError:  # without the extra there are no metrics
        return
    service.collectors.append(RecordingCollector(status))


def _in_background(port: int | None, *, stop: bool, others: bool) -> None:
    if others:
        raise click.UsageError("--detach accepts only --port, --stop no option: they control this user's server")
    from .connect import ConnectionFile, command_of
    from .origin import refuse_agents
    from .service import UserService

    service = UserService()
    if stop:
        refuse_agents()
        note("stopped; its store is kept" if service.stop() else "none was running")
        return
    how = service.start(port)
    note(f"trustfold is up at http://{service.address}, store {service.store}: {how}")
    note("See what it decides: `trustfold open`")
    for agent, file, fault in ConnectionFile(service.home).faults():
        if fault:
            note(f"{agent}: {file}: {fault}; {command_of(agent, Path(file))}")

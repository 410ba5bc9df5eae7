"""`trustfold web`: runs the dashboard of a Kafka deployment."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import click

from ..config import DEFAULT_HISTORY, EnvironmentSettings
from ..errors import ConfigError
from .options import bootstrap_option, listen_options
from .render import ExitCode, note


@click.command()
@bootstrap_option("default: localhost:9092")
@click.option(
    "--history",
    metavar="DIR",
    help="History that `trustfold record` writes for this Kafka. [env: TRUSTFOLD_HISTORY; default: "
    f"{DEFAULT_HISTORY}, if it exists]",
)
@listen_options
@click.option(
    "--allow-local-orders",
    is_flag=True,
    help="Accept orders from everybody who may read the pages; else they need TRUSTFOLD_OPERATOR_TOKEN.",
)
@click.option(
    "--rules",
    metavar="FILE",
    help="Rules of the workers, shown on the pages. [env: TRUSTFOLD_RULES; default: the shipped ones]",
)
def web(
    *,
    bootstrap: str | None,
    history: str | None,
    host: str | None,
    port: int | None,
    allow_local_orders: bool,
    rules: str | None,
) -> None:
    """Show the dashboard of workers on Kafka until Ctrl-C.

    It follows the topics without a consumer group, so any number of dashboards may run. While no broker answers, the
    pages show the age of their data. Orders go to the `commands` topic. It needs the dashboard's rights on the brokers
    (`trustfold topics acls --dashboard`).
    """
    from ..streams.embedded.roles import check_exposure
    from ..streams.embedded.serve import address_of, listen, serve
    from ..streams.embedded.sign_in import RoleTokens
    from ..streams.kafka.kafka_settings import KafkaSettings
    from ..web.dashboard.kafka_source import KafkaSource
    from ..web.routes import kafka_app
    from ..web.webhook import webhook_of

    ours = EnvironmentSettings.from_env()
    kafka = KafkaSettings.from_env(bootstrap=bootstrap)
    recorded = Path(history) if history else ours.history
    if history and not recorded.is_dir():
        raise ConfigError(f"{recorded}: no such directory; `trustfold record --history {recorded}` creates it")
    address = host or ours.host
    check_exposure(address, ours.token)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # the pages and the lines below report it
    source = KafkaSource(kafka, recorded if recorded.is_dir() else None, ours.rules(rules))
    listener = listen(address, ours.port if port is None else port)
    url = address_of(listener)
    roles = RoleTokens(ours.token, ours.operator_token, allow_local_orders)
    app = kafka_app(source, roles, webhook_of(ours, url))
    stopped = serve(app, listener, lambda: note(f"the dashboard is at {url}, over {source.name}; Ctrl-C stops it"))
    note("stopped")
    if stopped is signal.SIGINT:
        click.get_current_context().exit(ExitCode.INTERRUPTED)

"""Selection of the client by options and environment: a store, a running `up`, or Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from ...config import DEFAULT_DB, Settings
from ...errors import ConfigError
from .base import F, Record, Target


def target_options(command: F) -> F:
    """Decorator: adds the options that select the target."""
    for option in reversed(
        (
            click.option(
                "--store",
                metavar="FILE",
                help=f"Store of the embedded engine. [env: TRUSTFOLD_DB; default: {DEFAULT_DB}]",
            ),
            click.option("--url", metavar="URL", help="Address of a running `up`. [env: TRUSTFOLD_URL]"),
            click.option("--bootstrap", metavar="HOST:PORT", help="Kafka broker. [env: TRUSTFOLD_BROKER]"),
        )
    ):
        command = option(command)
    return command


def rules_options(command: F) -> F:
    """Decorator: adds the options for the files of rules and policies."""
    for option in (
        click.option("--policies", "policies_file", metavar="FILE", help="Policies file. [env: TRUSTFOLD_POLICIES]"),
        click.option("--rules", "rules_file", metavar="FILE", help="Rules file, TOML or JSON. [env: TRUSTFOLD_RULES]"),
    ):
        command = option(command)
    return command


def target_of(store: str | None, url: str | None, bootstrap: str | None, settings: Settings | None = None) -> Target:
    """Target named by the options, else by the environment, else the store of this directory or the user's service.

    Raises:
        ConfigError: the options name several targets, or there is no store.
    """
    given = [name for name, value in (("--store", store), ("--url", url), ("--bootstrap", bootstrap)) if value]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} name different places; give one of them")
    settings = settings or Settings.from_env()
    if not given:
        url, bootstrap = settings.url, "" if settings.url else settings.broker
    if url:
        from .http import HttpTarget

        return HttpTarget(url, settings.token, settings.operator_token)
    if bootstrap:
        from .kafka import KafkaTarget

        return KafkaTarget(bootstrap)
    from .store import StoreTarget

    path = Path(store) if store else settings.db
    if not store and path == DEFAULT_DB and not path.is_file():
        from ..service import UserService

        service = UserService()
        if service.store.is_file():
            return StoreTarget(service.store, *service.tokens_for_terminal())
    if path.is_dir():
        raise ConfigError(f"{path}: is a directory; name the store in it, e.g. {path / 'trustfold.sqlite'}")
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such store; start one with `trustfold up`, or name another place: --store FILE, --url URL, "
            "--bootstrap HOST:PORT"
        )
    return StoreTarget(path, settings.token, settings.operator_token)


def keys_for_completion(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Known keys, for the shell's completion; none if the target does not answer at once."""
    return _completed(context, incomplete, lambda _state: True)


def stuck_keys_for_completion(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Known keys that are not trusted and circuits that are not closed, for completion of `reset` and `recover`."""
    return _completed(context, incomplete, lambda state: state["kind"] == "breaker" or state["state"] != "trusted")


def _completed(context: click.Context, incomplete: str, wanted: Callable[[Record], bool]) -> list[str]:
    given = context.params
    try:
        target = target_of(given.get("store"), given.get("url"), given.get("bootstrap"))
        states = [state for state in target.overview().states if state["kind"] in {"trust", "breaker"}]
        keys = {str(state["key"]) for state in states if wanted(state)}
    except Exception:  # noqa: BLE001 - a completion must never print an error
        return []
    return sorted(key for key in keys if key.startswith(incomplete))

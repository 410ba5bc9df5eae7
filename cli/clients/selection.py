"""Selection of the client by options and environment: a store, a running `up`, or Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from ...config import DEFAULT_DB, EnvironmentSettings
from ...errors import ConfigError
from ...schemas.public_state import BreakerUpdated, TrustUpdated
from ...schemas.vocabulary import TrustState
from .client import DeploymentClient, TargetRights


def target_of(
    store: str | None = None,
    url: str | None = None,
    bootstrap: str | None = None,
    settings: EnvironmentSettings | None = None,
) -> DeploymentClient:
    """Target named by the options, else by the environment, else the store of this directory or the user's service."""
    given = [name for name, value in (("--store", store), ("--url", url), ("--bootstrap", bootstrap)) if value]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} name different places; give one of them")
    settings = settings or EnvironmentSettings.from_env()
    if not given:
        url, bootstrap = settings.url, "" if settings.url else settings.broker
    from ..service import UserService

    service = UserService()
    if url:
        from .http import HttpTarget

        if service.is_at(url) and not settings.token:
            return HttpTarget(url, service.rights(settings.operator_token))
        return HttpTarget(url, TargetRights(settings.token, settings.operator_token))
    if bootstrap:
        from .kafka import KafkaTarget

        return KafkaTarget(bootstrap)
    from .store_client import StoreTarget

    path = Path(store) if store else settings.db
    if not store and path == DEFAULT_DB and not path.is_file() and service.store.is_file():
        path = service.store
    if path.is_dir():
        raise ConfigError(f"{path}: is a directory; name the store in it, e.g. {path / 'trustfold.sqlite'}")
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such store; connect an agent (`trustfold connect AGENT`), start one with `trustfold up`, or "
            "name another place: --store FILE, --url URL, --bootstrap HOST:PORT"
        )
    if path.resolve() == service.store.resolve():
        return StoreTarget(path, service.rights(settings.operator_token))
    return StoreTarget(path, TargetRights(settings.token, settings.operator_token))


def keys_for_completion(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Known keys, for the shell's completion; none if the target does not answer at once."""
    return _completed(context, incomplete, lambda _state: True)


def stuck_keys_for_completion(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Known keys that are not trusted and circuits that are not closed, for completion of `reset` and `recover`."""
    return _completed(
        context, incomplete, lambda one: isinstance(one, BreakerUpdated) or one.state is not TrustState.TRUSTED
    )


def _completed(
    context: click.Context, incomplete: str, wanted: Callable[[TrustUpdated | BreakerUpdated], bool]
) -> list[str]:
    given = context.params
    try:
        target = target_of(given.get("store"), given.get("url"), given.get("bootstrap"))
        states = [one for one in target.overview().states if isinstance(one, TrustUpdated | BreakerUpdated)]
    except Exception:  # noqa: BLE001 - a completion must never print an error
        return []
    return sorted({one.key for one in states if wanted(one) and one.key.startswith(incomplete)})

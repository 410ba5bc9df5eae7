"""Keeps a policy's view at the public states of an engine that is served."""

from __future__ import annotations

from collections.abc import Sequence

from ..integrations.policy import Policy
from ..projections.emit import Output
from ..streams.embedded.server import Service


def policy_of(service: Service) -> Policy:
    """A policy that follows the engine from now on, in the order of its commits."""
    policy = Policy()
    writer = service.writer
    for key, value in writer.engine.states().items():
        policy.view.apply(key, value)

    def listen(outputs: Sequence[Output]) -> None:
        for output in outputs:
            if output.topic == "state":
                policy.view.apply(output.key, output.value)

    writer.listeners.append(listen)
    return policy

"""trustfold folds the events of AI agents' tool calls into decisions.

Is this tool healthy (breaker), may it run without asking (trust), is this model stuck (behaviour)? The names
below are the ones a program needs first; each is imported when it is first used, so that `import trustfold`
is quick and loads no engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import ConfigError, EventRejected, StateIncompatible, TrustfoldError
    from .schemas.codec import decode_event, encode

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "EventRejected",
    "StateIncompatible",
    "TrustfoldError",
    "__version__",
    "decode_event",
    "encode",
]

_HOMES = {
    "ConfigError": ".errors",
    "EventRejected": ".errors",
    "StateIncompatible": ".errors",
    "TrustfoldError": ".errors",
    "decode_event": ".schemas.codec",
    "encode": ".schemas.codec",
}


def __getattr__(name: str) -> object:
    """Import a public name from its home at its first use (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported already or not."""
    return sorted(set(globals()) | set(__all__))

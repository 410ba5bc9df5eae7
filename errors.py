"""The error tree, where a user looks for it; it lives in `trustfold.schemas.errors`.

Each class says whose fault it is: `EventRejected` the publisher's, `ConfigError` the operator's,
`StateIncompatible` the deployment's.
"""

from .schemas.errors import ConfigError, EventRejected, RejectReason, StateIncompatible, TrustfoldError

__all__ = ["ConfigError", "EventRejected", "RejectReason", "StateIncompatible", "TrustfoldError"]

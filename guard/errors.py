"""What the guard raises: only where a caller asks for a plain value instead of a result."""

from __future__ import annotations

from ..errors import TrustfoldError


class GuardError(TrustfoldError):
    """Base of everything the guard raises on purpose."""


UNKNOWN_TOOL = "unknown_tool"
INVALID_INPUT = "invalid_input"


class EnvelopeRejected(GuardError):
    """A request that describes no call; nothing was called. The message names the field and the fault.

    Attributes:
        code: `unknown_tool` where nobody knows what to call, else `invalid_input`.
    """

    def __init__(self, message: str, code: str = INVALID_INPUT) -> None:
        super().__init__(message)
        self.code = code


class CallNotPermitted(GuardError):
    """The tool was not called: its circuit is open, trust is withdrawn, a limit is spent, or somebody said no.

    Attributes:
        code: stable reason, e.g. `circuit_open`, `blocked`, `denied`, `guarantee_exceeded`, `key_conflict`.
        tool_name: the tool.
    """

    def __init__(self, code: str, tool_name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.tool_name = tool_name


class ToolFailed(GuardError):
    """The tool answered with a failure instead of raising one.

    Attributes:
        code: HTTP status, error type or exit code.
        output: what it returned.
    """

    def __init__(self, code: str, message: str, output: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.output = output

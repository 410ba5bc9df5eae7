"""Exceptions of the guard, raised only where a caller asks for a plain value instead of a result."""

from __future__ import annotations

from ..errors import TrustfoldError


class GuardError(TrustfoldError):
    """Base class of the guard's exceptions."""


UNKNOWN_TOOL = "unknown_tool"
INVALID_INPUT = "invalid_input"


class EnvelopeRejected(GuardError):
    """A request does not describe a valid call; nothing was called. The message names the field and the fault.

    Attributes:
        code: `unknown_tool` if the tool is unknown and has no function, else `invalid_input`.
    """

    def __init__(self, message: str, code: str = INVALID_INPUT) -> None:
        super().__init__(message)
        self.code = code


class CallNotPermitted(GuardError):
    """The tool was not called: open circuit, withdrawn trust, spent limit, or denied permission.

    Attributes:
        code: stable reason, e.g. `circuit_open`, `blocked`, `denied`, `guarantee_exceeded`, `key_conflict`.
        tool_name: name of the tool.
    """

    def __init__(self, code: str, tool_name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.tool_name = tool_name


class ToolFailed(GuardError):
    """The tool returned a failure instead of raising one.

    Attributes:
        code: HTTP status, error type or exit code.
        output: return value of the tool.
    """

    def __init__(self, code: str, message: str, output: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.output = output

"""Kill switch: calls the tool unguarded and once; nothing is checked, retried or published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..schemas.tool_envelopes import ResultError, ResultStatus
from .attempts import Function, Runner, call_as_is
from .control_flow import Passthrough, steers
from .failure import of_exception
from .result import ToolResult


async def call_unguarded(
    tool_name: str, function: Function, args: Mapping[str, Any], runner: Runner | None, passthrough: Passthrough
) -> ToolResult:
    """Call a function unguarded and return its result.

    Raises:
        BaseException: control flow instead of a failure.
    """
    made = ToolResult(request_id="", tool_name=tool_name, status=ResultStatus.SUCCESS, attempts=1)
    made.output, error = await call_as_is(function, args, runner)
    if error is not None:
        if steers(error, passthrough):
            raise error
        made.status, made.exception, made.error = ResultStatus.ERROR, error, _raised(error)
    return made


def _raised(error: BaseException) -> ResultError:
    failure = of_exception(error)
    return ResultError(
        code=failure.code, message=failure.message, retriable=failure.retriable, terminal=not failure.retriable
    )

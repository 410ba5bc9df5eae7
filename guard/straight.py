"""Calls that no guard stands before: with the kill switch on, a tool is called as if there were none."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from typing import Any

from ..schemas.tool_envelopes import ResultError, ResultStatus
from .attempts import Function, Runner
from .failure import of_exception
from .result import ToolResult


async def call_straight(
    tool_name: str, function: Function, args: Mapping[str, Any], runner: Runner | None
) -> ToolResult:
    """The kill switch: the function is called once, as it is; nothing is checked, tried again or published."""
    made = ToolResult(request_id="", tool_name=tool_name, status=ResultStatus.SUCCESS, attempts=1)
    try:
        if inspect.iscoroutinefunction(function):
            made.output = await function(**args)
        elif runner is not None:
            made.output = await runner(function, dict(args))
        else:
            made.output = await asyncio.to_thread(function, **args)
            if inspect.isawaitable(made.output):
                made.output = await made.output
    except Exception as error:  # noqa: BLE001 - `unwrap` raises it again
        made.status, made.exception, made.error = ResultStatus.ERROR, error, _raised(error)
    return made


def _raised(error: Exception) -> ResultError:
    failure = of_exception(error)
    return ResultError(
        code=failure.code, message=failure.message, retriable=failure.retriable, terminal=not failure.retriable
    )

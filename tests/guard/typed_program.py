"""A program for `make typecheck`: each line with an ignored error must be one, and no other line may be."""

from typing import assert_type

from trustfold.guard import SyncToolGuard, ToolGuard

guard = ToolGuard.in_memory()
blocking = SyncToolGuard.in_memory()


@guard.tool
def add(one: int, other: int = 0) -> int:
    """A plain function."""
    return one + other


@guard.tool(read_only=True, service="maths", tags=["a"])
async def double(number: int) -> int:
    """A coroutine function."""
    return 2 * number


@blocking.tool(name="other", timeout_ms=5)
def negate(number: int) -> int:
    """A function of a blocking guard."""
    return -number


@guard.tool(read_onyl=True)  # type: ignore[call-overload,untyped-decorator]
def misspelt() -> None:
    """A declaration that does not exist."""


guard.register("misspelt", misspelt, volatile_parms=("a",))  # type: ignore[call-arg]


async def use() -> None:
    """Calls as they are and as they should not be."""
    assert_type(add(1, other=2), int)
    assert_type(await double(1), int)
    assert_type(negate(1), int)
    add("x")  # type: ignore[arg-type]
    add(1, another=2)  # type: ignore[call-arg]
    await double()  # type: ignore[call-arg]
    negate("x")  # type: ignore[arg-type]
    result = await guard.call("double", double, {"number": 1})
    assert_type(result.unwrap(), int)
    assert_type(result.output, int | None)
    assert_type((await guard.call("add", add, {"one": 1})).unwrap(), int)
    await guard.call("add", add, {"one": 1}, sesion_id="s")  # type: ignore[call-overload]

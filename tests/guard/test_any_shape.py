"""A guarded call ends as the bare call would have, whatever the tool takes, gives back or raises."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from typing import Any

import orjson
import pytest
from guard_kit import GraphInterrupt, code_of
from hypothesis import given
from hypothesis import strategies as st
from trustfold.guard import ExecutionGuarantees, SyncToolGuard, ToolGuard
from trustfold.guard.testing import guard_for_tests, published
from trustfold.schemas.codec import decode_event
from trustfold.schemas.tool_envelopes import ResultStatus

# --- things that tools give back -------------------------------------------------------------------------------------


class Hostile:
    """An object that fails however it is looked at."""

    def _fail(self, *_: Any) -> Any:
        raise RuntimeError("do not touch")

    __repr__ = __str__ = __len__ = __bool__ = __iter__ = __getattr__ = __format__ = __hash__ = _fail  # type: ignore[assignment]
    __eq__ = __lt__ = __contains__ = __getitem__ = __int__ = __float__ = __deepcopy__ = __reduce_ex__ = _fail  # type: ignore[assignment]

    @property
    def isError(self) -> bool:  # noqa: N802 - the name that MCP's results have
        """Fails, too."""
        raise RuntimeError("do not touch")

    status_code = code = status = isError


class Pretender:
    """An object that has every attribute."""

    def __getattr__(self, name: str) -> Any:
        return Pretender()


class HostileDict(dict):  # type: ignore[type-arg]
    """A mapping whose methods fail."""

    def _fail(self, *_: Any) -> Any:
        raise RuntimeError("do not touch")

    get = items = keys = values = __iter__ = __contains__ = __getitem__ = _fail  # type: ignore[assignment]


class HostileText(str):
    """Text whose methods fail."""

    __slots__ = ()

    def _fail(self, *_: Any) -> Any:
        raise RuntimeError("do not touch")

    encode = isascii = __str__ = __len__ = __eq__ = __repr__ = _fail  # type: ignore[assignment]
    __hash__ = str.__hash__


class HostileError(Exception):
    """An exception that fails however it is looked at."""

    def __str__(self) -> str:
        raise RuntimeError("do not touch")

    __repr__ = __str__

    @property
    def response(self) -> Any:
        """Fails, too."""
        raise RuntimeError("do not touch")

    code = errno = status_code = retriable = response


class ModelRetry(Exception):
    """As Pydantic AI's."""

    __module__ = "pydantic_ai.exceptions"


class ApprovalRequired(Exception):
    """As Pydantic AI's."""

    __module__ = "pydantic_ai.exceptions"


class Redirect(Exception):
    """An exception of the platform's own that `passthrough` names."""


def circular() -> Any:
    """A list and an object that hold themselves."""
    made: list[Any] = [{}]
    made[0]["self"] = made
    return made


def deep() -> Any:
    """5,000 levels."""
    made: Any = []
    for _ in range(5_000):
        made = [made]
    return made


RESULTS: list[Callable[[], Any]] = [
    lambda: None, lambda: 2**70, lambda: 10**5000, lambda: -(2**200), lambda: float("nan"), lambda: float("-inf"),
    lambda: {("a", 1): 2, None: 3, 4.5: b"x"}, circular, deep, Hostile, Pretender, lambda: HostileDict(error="x"),
    lambda: HostileText("x"), lambda: b"\xff" * 1000, lambda: bytearray(b"x"), lambda: memoryview(b"x"),
    lambda: "\ud800 half", lambda: {"\ud800": "\udfff"}, lambda: {1, 2}, lambda: frozenset({(1,)}), lambda: Hostile,
    lambda: {"error": Hostile()}, lambda: {"isError": Hostile(), "content": Hostile()}, lambda: [Hostile()] * 3,
    lambda: {"status_code": 2**70, "exit_code": float("nan")}, lambda: {"cost_usd": 10**400}, lambda: range(10**12),
    lambda: {"cost_usd": Hostile()}, lambda: iter([1]), lambda: NotImplemented, lambda: ..., lambda: lambda: 1,
    lambda: complex(1, 2), lambda: StopIteration(1), lambda: ValueError("returned, not raised"), lambda: "x" * 300_000,
    lambda: list(range(5_000)), lambda: {str(n): {"n": [n]} for n in range(3_000)},
]  # fmt: skip

ERRORS: list[Callable[[], BaseException]] = [
    HostileError, StopIteration, lambda: StopIteration(1), StopAsyncIteration, lambda: ValueError("\ud800"),
    lambda: RuntimeError(Hostile()), lambda: KeyError(("a", 2**70)), lambda: OSError(5, "x"), RecursionError,
    lambda: ExceptionGroup("g", [ValueError("x")]), TimeoutError,
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"),
    lambda: GraphInterrupt(()), ModelRetry, ApprovalRequired, Redirect,
    lambda: ExceptionGroup("g", [ModelRetry()]), asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit,
    lambda: BaseExceptionGroup("g", [KeyboardInterrupt()]), MemoryError, AssertionError, lambda: SyntaxError("\x00"),
]  # fmt: skip

CONTROL_FLOW = (
    GraphInterrupt, ModelRetry, ApprovalRequired, Redirect, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt,
    SystemExit,
)  # fmt: skip


def raises(error: BaseException) -> None:
    """Raise it."""
    raise error


class Drawn:
    """A tool that was drawn: what it gives back or raises, and of which kind its function is."""

    def __init__(self, kind: str, make: Callable[[], Any], *, fails: bool, items: int) -> None:
        self.kind, self.make, self.fails, self.items = kind, make, fails, items
        self.runs = 0
        self.value: Any = None

    def __repr__(self) -> str:
        return f"{self.kind} tool no. {(ERRORS if self.fails else RESULTS).index(self.make)} fails={self.fails}"

    def _end(self) -> Any:
        self.runs += 1
        self.value = self.make()
        if self.fails:
            raise self.value
        return self.value

    def function(self) -> Callable[..., Any]:
        """The tool, anew."""
        if self.kind == "async":

            async def tool(**_: Any) -> Any:
                await asyncio.sleep(0)
                return self._end()

            return tool
        if self.kind == "generator":

            def generator(**_: Any) -> Iterator[Any]:
                yield from range(self.items)
                return self._end()

            return generator
        if self.kind == "async generator":

            async def async_generator(**_: Any) -> AsyncIterator[Any]:
                for n in range(self.items):
                    yield n
                yield self._end()

            return async_generator
        if self.kind == "awaitable":

            async def inner() -> Any:
                return self._end()

            return lambda **_: inner()
        return lambda **_: self._end()


TOOLS = st.builds(
    lambda kind, fails, number, items: Drawn(
        kind, (ERRORS if fails else RESULTS)[number % len(ERRORS if fails else RESULTS)], fails=fails, items=items
    ),
    st.sampled_from(["plain", "async", "generator", "async generator", "awaitable"]),
    st.booleans(),
    st.integers(0, 200),
    st.integers(0, 3),
)


async def ending(made: Any) -> tuple[list[Any], Any]:
    """What a stream gives, and what it returns at last; a plain value is that."""
    seen: list[Any] = []
    if inspect.isasyncgen(made):
        seen += [item async for item in made]
        return seen, None
    if inspect.isgenerator(made):
        while True:
            try:
                seen.append(next(made))
            except StopIteration as end:
                return seen, end.value
    return seen, made


async def bare(tool: Drawn) -> tuple[Any, BaseException | None]:
    """How the tool ends without a guard."""
    try:
        made = tool.function()()
        if inspect.isawaitable(made):
            made = await made
        return await ending(made), None
    except BaseException as error:  # noqa: BLE001 - every one is drawn
        return None, error


async def through(guard: ToolGuard, tool: Drawn, options: dict[str, Any]) -> tuple[Any, BaseException | None]:
    """How it ends with one; a StopIteration, which no coroutine can raise, as its result says."""
    try:
        result = await guard.call("tool", tool.function(), {"n": 1}, **options)
    except BaseException as error:  # noqa: BLE001 - control flow
        assert isinstance(error, (*CONTROL_FLOW, BaseExceptionGroup))  # noqa: PT017 - any of them, where none need be
        return None, error
    if isinstance(result.exception, StopIteration | StopAsyncIteration):
        return None, result.exception
    if result.status is not ResultStatus.SUCCESS and result.exception is None:
        return ([], result.output), None
    try:
        return await ending(result.unwrap()), None
    except BaseException as error:  # noqa: BLE001 - every one is drawn
        return None, error


def same_value(one: Any, other: Any, value: Any) -> bool:
    """Whether two ends are one: what was read on the way, and the very object at the end."""
    return (
        type(one) is type(other)
        and one[0][:-1] == other[0][:-1]
        and type(one[1]) is type(other[1])
        and (other[1] is value or other[1] is None)
    )


@given(TOOLS, st.sampled_from([{}, {"idempotency_key": "k"}, {"timeout_ms": 60_000}]), st.booleans())
def test_a_guarded_call_and_a_bare_call_end_alike(tool: Drawn, options: dict[str, Any], send: bool) -> None:
    """Drawn tools of every kind: the same items, the very result, the very exception, one run; valid events."""

    async def both() -> None:
        value, error = await bare(tool)
        guard = guard_for_tests(passthrough=(Redirect,), send_args=send, send_errors=send)
        before = tool.runs
        other, raised = await through(guard, tool, {"session_id": "s1", **options})
        assert tool.runs == before + 1
        assert type(raised) is type(error)
        if raised is not None and not isinstance(error, RuntimeError):
            assert raised is tool.value
        if error is None:
            assert same_value(value, other, tool.value)
        await asyncio.sleep(0)
        events = guard.memory.published
        assert [decode_event(event) for event in events]
        assert orjson.loads(events[-1])["type"] == "tool_call.finished"
        if isinstance(error, CONTROL_FLOW):
            assert orjson.loads(events[-1])["status"] == "cancelled"

    asyncio.run(both())


@given(TOOLS.filter(lambda tool: tool.kind in {"plain", "generator"}), st.sampled_from([{}, {"timeout_ms": 60_000}]))
def test_a_guard_without_a_loop_ends_alike(tool: Drawn, options: dict[str, Any]) -> None:
    """The same in a program that waits, in the caller's thread and with a time limit in another."""

    def end(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        try:
            made = call()
            return (list(made) if inspect.isgenerator(made) else made), None
        except BaseException as error:  # noqa: BLE001 - every one is drawn
            return None, error

    _, error = end(tool.function())
    name = f"tool_{next(NUMBERS)}"  # its own circuit
    _, raised = end(lambda: SYNC.call(name, tool.function(), {}, session_id="s1", **options).unwrap())
    assert type(raised) is type(error)
    if raised is not None and not isinstance(error, RuntimeError):
        assert raised is tool.value
    assert tool.runs == 2


NUMBERS = count()
SYNC = SyncToolGuard.in_memory(passthrough=(Redirect,))


@given(st.sampled_from(RESULTS), st.sampled_from(["read_only", "dedupe", "key"]))
def test_a_twin_has_the_same_end_or_is_refused(make: Callable[[], Any], how: str) -> None:
    """Two calls that are one: one run, and the second result is as the first; or a clear word that there is none."""

    async def both() -> None:
        guard, runs = guard_for_tests(), 0
        guard.register("tool", **({how: True} if how != "key" else {}))

        async def tool() -> Any:
            nonlocal runs
            runs += 1
            await asyncio.sleep(0)
            return make()

        options = {"session_id": "s1", **({"idempotency_key": "k"} if how == "key" else {})}
        one, other = await asyncio.gather(*(guard.call("tool", tool, {}, **options) for _ in range(2)))
        if other.error is not None and other.error.code == "result_unavailable":
            assert runs == 1
        else:
            assert runs == 1 or how == "read_only"
            assert type(other.output) is type(one.output)

    asyncio.run(both())


@given(
    st.sampled_from(RESULTS), st.sampled_from(["x", "url", "command", "path", "headers", "password"]),
    st.sampled_from([{}, {"read_only": True}, {"dedupe": True}]), st.sampled_from([{}, {"idempotency_key": "k"}]),
    st.sampled_from(["tool", "bash", "http_request"]), st.booleans(),
)  # fmt: skip
def test_a_tool_gets_what_it_was_called_with(
    make: Callable[[], Any], parameter: str, nature: dict[str, Any], options: dict[str, Any], name: str, send: bool
) -> None:
    """Arguments of any shape: the very objects, whatever is declared, sent or refused about them."""

    async def run() -> None:
        guard, seen = guard_for_tests(send_args=send), []
        guard.register(name, **nature)
        value = make()

        async def tool(**args: Any) -> str:
            seen.append(args[parameter])
            return "ok"

        result = await guard.call(name, tool, {parameter: value}, session_id="s1", **options)
        assert result.output == "ok"
        assert len(seen) == 1
        assert seen[0] is value
        assert [decode_event(event) for event in guard.memory.published]
        assert guard.publisher.lost == 0

    asyncio.run(run())


# --- streams ---------------------------------------------------------------------------------------------------------


async def test_a_stream_is_handed_over_as_it_comes_and_ends_the_call() -> None:
    """The first item is there before the second is made; the call is over when the stream is."""
    guard = guard_for_tests()
    made: list[int] = []

    async def numbers() -> AsyncIterator[int]:
        for n in range(3):
            made.append(n)
            yield n

    result = await guard.call("numbers", numbers, session_id="s1")
    stream = result.unwrap()
    assert inspect.isasyncgen(stream)
    assert made == []
    assert await anext(stream) == 0
    assert made == [0]
    assert published(guard, "tool_call.finished") == []
    assert [n async for n in stream] == [1, 2]
    (finish,) = published(guard, "tool_call.finished")
    assert finish["status"] == "success"


async def test_a_stream_that_fails_half_way_fails_its_call(guard: ToolGuard) -> None:
    """What has come stays; the reader gets the error, and the call has failed with it."""

    def lines() -> Iterator[str]:
        yield "one"
        raise ConnectionResetError("gone")

    stream = (await guard.call("lines", lines, session_id="s1")).unwrap()
    assert next(stream) == "one"
    with pytest.raises(ConnectionResetError, match="gone"):
        next(stream)
    (finish,) = published(guard, "tool_call.finished")
    assert (finish["status"], finish["error"]["type"]) == ("retriable_error", "ConnectionResetError")


@pytest.mark.parametrize("reads", [0, 1])
async def test_a_stream_that_nobody_reads_on_is_neither_good_nor_bad(reads: int, guard: ToolGuard) -> None:
    """Begun or not: when it goes, its call is over."""

    def lines() -> Iterator[str]:
        yield "one"
        yield "two"

    stream = (await guard.call("lines", lines, session_id="s1")).unwrap()
    for _ in range(reads):
        next(stream)
    del stream
    gc.collect()
    await asyncio.sleep(0)
    (finish,) = published(guard, "tool_call.finished")
    assert finish["status"] == "cancelled"


async def test_a_stream_takes_what_its_reader_sends(guard: ToolGuard) -> None:
    """send, throw, close and the return value reach the tool's own generator and come back."""

    def echo() -> Iterator[Any]:
        sent: Any = None
        while sent != "end":
            try:
                sent = yield sent
            except KeyError:
                sent = "caught"
        return "returned"

    async def async_echo() -> AsyncIterator[Any]:
        sent: Any = None
        while sent != "end":
            try:
                sent = yield sent
            except KeyError:
                sent = "caught"

    stream = (await guard.call("echo", echo, session_id="s1")).unwrap()
    assert [next(stream), stream.send(1), stream.throw(KeyError())] == [None, 1, "caught"]
    with pytest.raises(StopIteration) as end:
        stream.send("end")
    assert end.value.value == "returned"
    stream = (await guard.call("echo", async_echo, session_id="s1")).unwrap()
    assert [await anext(stream), await stream.asend(1), await stream.athrow(KeyError())] == [None, 1, "caught"]
    with pytest.raises(StopAsyncIteration):
        await stream.asend("end")
    assert [one["status"] for one in published(guard, "tool_call.finished")] == ["success", "success"]


async def test_a_keyed_stream_holds_its_key_until_it_ends(guard: ToolGuard) -> None:
    """A twin waits for it and is told that a stream cannot be given twice; one that failed may be run again."""
    runs = 0
    guard.register("numbers", idempotent=True)

    async def numbers() -> AsyncIterator[int]:
        nonlocal runs
        runs += 1
        yield runs
        if runs == 1:
            raise ConnectionResetError

    async def call() -> Any:
        return await guard.call("numbers", numbers, session_id="s1", idempotency_key="k")

    first = (await call()).unwrap()
    assert await anext(first) == 1
    twin = asyncio.create_task(call())
    await asyncio.sleep(0.01)
    assert not twin.done()
    with pytest.raises(ConnectionResetError):
        await anext(first)
    shared = await twin
    assert shared.status is ResultStatus.RETRIABLE_ERROR
    assert [n async for n in (await call()).unwrap()] == [2]
    await asyncio.sleep(0.01)
    refused = await call()
    assert (code_of(refused), runs) == ("result_unavailable", 2)


# --- control flow ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [GraphInterrupt(()), ModelRetry("again"), ApprovalRequired(), Redirect(), SystemExit(3)], ids=repr
)
async def test_what_steers_passes_through_and_is_no_failure(error: BaseException) -> None:
    """The very exception, no retry, nothing held against the tool, and the key is free for the call that resumes."""
    guard = guard_for_tests(passthrough=[Redirect])
    guard.register("ask", read_only=True)
    runs = 0

    async def ask() -> str:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise error
        return "approved"

    with pytest.raises(type(error)) as raised:
        await guard.call("ask", ask, session_id="s1", idempotency_key="k")
    assert raised.value is error
    assert (await guard.call("ask", ask, session_id="s1", idempotency_key="k")).output == "approved"
    assert [one["status"] for one in published(guard, "tool_call.finished")] == ["cancelled", "success"]


async def test_what_steers_gives_back_what_was_reserved_for_it() -> None:
    """A call that is asked for approval again and again costs its session nothing."""
    guard = guard_for_tests()
    async with guard.session("s1", guarantees=ExecutionGuarantees(max_cost_usd=1.0)) as session:
        for _ in range(5):
            with pytest.raises(GraphInterrupt):
                await session.call("ask", lambda: raises(GraphInterrupt(())), cost_usd=0.9)
        assert (await session.call("ask", lambda: "approved", cost_usd=0.9)).output == "approved"


async def test_a_tool_or_a_name_may_add_to_what_steers() -> None:
    """A class for one tool, or `package.Class` as text where importing the package is too much."""
    guard = guard_for_tests(passthrough=(f"{__name__}.Redirect",))
    guard.register("lookup", passthrough=(LookupError,))
    with pytest.raises(Redirect):
        await guard.call("other", lambda: raises(Redirect()), session_id="s1")
    with pytest.raises(KeyError):
        await guard.call("lookup", lambda: raises(KeyError()), session_id="s1")
    assert (await guard.call("other", lambda: raises(KeyError()), session_id="s1")).status is ResultStatus.ERROR


async def test_the_kill_switch_steers_as_well() -> None:
    """With the guard off an interrupt is one, and StopIteration does not hang."""
    guard = guard_for_tests(enabled=False)
    with pytest.raises(GraphInterrupt):
        await guard.call("x", lambda: raises(GraphInterrupt(())))
    result = await asyncio.wait_for(guard.call("x", lambda: raises(StopIteration())), 60)
    assert isinstance(result.exception, StopIteration)

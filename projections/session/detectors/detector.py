"""What a detector is, and what it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import msgspec

from ....rules.rules import Rules
from ....schemas.events import ModelText, ToolCallFinished
from ....schemas.vocabulary import Pattern, PatternSeverity
from ..calls import Args
from ..context import Context
from ..records import ActivePattern, OpenCall
from ..steps import Done
from ..verdicts import Verdict

Texts = tuple[str, str, str]
"""Texts of a nudge: minor, moderate, severe."""


class Finished(msgspec.Struct, gc=False):
    """A call that has finished, and that says something.

    Attributes:
        same: the same call's earlier ones in the window of steps, oldest first.
        news: it has not given this result within the window, or its result is not known.
    """

    event: ToolCallFinished
    call: OpenCall
    verdict: Verdict
    same: list[Done]
    news: bool


class Message(msgspec.Struct, gc=False):
    """A text of the model.

    Attributes:
        announces: it announces work, by its words or as its publisher says. A thought announces nothing.
        sentences: the sentences by which it does, in lower case; one may come twice.
    """

    event: ModelText
    announces: bool
    sentences: Iterator[str]


class Detector(msgspec.Struct, array_like=True):
    """Base of the detectors: looks for one pattern and keeps what it has counted.

    A detector overrides the hooks of the events that it is interested in, and is called for no others. Hooks named in
    *while detection is on* run only then; the others always, so that nothing stale is left when it is switched on.
    What is seen is appended to `ctx.sightings`. Fields are part of the session's snapshot: they are only ever
    appended, have defaults and are bounded. Each agent of a session has detectors of its own.

    Class attributes:
        pattern: what it looks for; also the name of its ladder in `BehaviourRules`, and of its field in `Detectors`.
        ends_with: what ends it besides a user message, in words for people.
        texts: what a nudge says at each severity. Interrupts say PAUSED: BLOCKED is trust's word. A nudge states facts
            and asks for the next step; it never tells the model to stop using tools. Operators override them in
            `nudges.texts`.
        variants: further texts, by the `variant` of a sighting.
        of_session: one detector serves all agents of a session, and stays when the user speaks.
        reported: place of its sightings among those of one event. Ids of outputs follow from that order, so it is not
            changed; it is not the precedence.
        wants_action: the pattern is only over when the model has done something, be it to end its turn.
        ended_by_progress: a successful action that is new ends the pattern.
        ended_by_call: the same call, finished without showing the pattern, ends it.
        outgrown: the pattern is over when it has not repeated for a whole window of steps.
    """

    pattern: ClassVar[Pattern]
    ends_with: ClassVar[str]
    texts: ClassVar[Texts]
    variants: ClassVar[Mapping[str, Texts]] = {}
    of_session: ClassVar[bool] = False
    reported: ClassVar[int] = 100
    wants_action: ClassVar[bool] = False
    ended_by_progress: ClassVar[bool] = False
    ended_by_call: ClassVar[bool] = False
    outgrown: ClassVar[bool] = False

    def is_over(self, active: ActivePattern, ctx: Context) -> bool:
        """Whether an open pattern is over, as the state stands after the current event."""
        del active, ctx
        return False

    @classmethod
    def own_text(cls, active: ActivePattern, severity: PatternSeverity, rules: Rules) -> str:
        """Text of a nudge that goes before the operator's and before `texts`; empty: there is none."""
        del active, severity, rules
        return ""

    # --- while detection is on ----------------------------------------------------------------------------------------

    def on_call(self, call: OpenCall, args: Args, ctx: Context) -> None:
        """A call has begun; its arguments are empty where they are not known."""

    def on_success(self, tool_name: str, ctx: Context) -> None:
        """Where there are policies: a call of a tool has succeeded, be it from a cache or long after its deadline."""

    def on_progress(self) -> None:
        """A successful action that is new has finished; told before `on_finish`."""

    def on_finish(self, done: Finished, ctx: Context) -> None:
        """A call has finished."""

    def on_failure(self, done: Finished, ctx: Context) -> None:
        """A call has failed; told after `on_finish`."""

    def on_step(self, ctx: Context) -> None:
        """The last call of a step has finished; told after `on_finish` and `on_failure`."""

    def on_message(self, message: Message, ctx: Context) -> None:
        """The model has said something to somebody."""

    def on_text(self, message: Message, ctx: Context) -> None:
        """The model has said or thought something; told after `on_message`."""

    def on_turn(self, ctx: Context) -> None:
        """The open turn is over."""

    # --- always -------------------------------------------------------------------------------------------------------

    def on_act(self, call: OpenCall) -> None:
        """The agent has called a tool; told before `on_call`."""

    def on_turn_start(self, ctx: Context) -> None:
        """Another turn begins."""

    def on_turn_over(self, ctx: Context, *, ended: bool) -> None:
        """The open turn is over, told before `on_turn`; `ended`: by its end, not by the start of the next one."""

    def on_user(self, ctx: Context) -> None:
        """The user has spoken, or the session has ended. Detectors of one agent are made anew instead of being told."""

    def due(self, ctx: Context) -> int:
        """When there is something to report because time has passed, milliseconds; 0 never."""
        del ctx
        return 0

    def on_due(self, ctx: Context) -> None:
        """The time of `due` may have come; it is `ctx.emit.at` now."""

    def on_overdue(self, call: OpenCall, ctx: Context) -> None:
        """A call of the agent that acts has passed its deadline."""

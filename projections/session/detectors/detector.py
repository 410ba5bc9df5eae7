"""Base class of the detectors, and the values passed to their hooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import msgspec

from ....rules.rules import RuleSet
from ....schemas.events import ModelText, ToolCallFinished
from ....schemas.vocabulary import PatternType
from ..records import SEVERITIES, ActivePattern, CallRecord, EventContext
from ..steps import FinishedStep
from ..verdicts import FinishVerdict

# Texts of a nudge: a hint, guidance and, of a pattern that may stop a run, the reason of the pause
Texts = tuple[str, str] | tuple[str, str, str]


class FinishedCall(msgspec.Struct, gc=False):
    """A finished call whose verdict is not neutral.

    Attributes:
        same: earlier occurrences of the same call in the window of steps, oldest first.
        equal: whether the call has given this result before within the window.
        news: whether the result holds something that the agent has not seen; for an unknown result, whether it is no
            equal one.
        known: whether the result has lines and all that were looked at have been seen before.
    """

    event: ToolCallFinished
    call: CallRecord
    verdict: FinishVerdict
    same: Sequence[FinishedStep]
    equal: bool
    news: bool
    known: bool


class SpokenText(msgspec.Struct, gc=False):
    """A text written by the model.

    Attributes:
        announces: whether it announces work, by its words or by the publisher's flag; always False for a thought.
        sentences: the sentences that announce work, in lower case; may contain duplicates.
    """

    event: ModelText
    announces: bool
    sentences: Iterator[str]


class PatternDetector(msgspec.Struct, array_like=True):
    """Base class of the detectors: detects one pattern and keeps the counts for it.

    A detector overrides the hooks that it needs, and only those are called. Hooks in the section *while detection is
    on* run only while detection is on; the others always run, so that no stale counts are left when it is switched on.
    A detector appends what it sees to `ctx.sightings`. Its fields are part of the session's snapshot: new fields are
    only appended, and all have defaults and are bounded. Each agent of a session has its own detectors.

    Class attributes:
        pattern: the detected pattern; also the name of its ladder in `BehaviourRules` and of its field in `AgentDetectors`.
        ends_with: description, for people, of what ends the pattern besides a user message.
        texts: nudge texts by strength. A nudge names the call, states facts, says what to look at and leaves the way
            open; it never tells the model to stop using tools. Operators override them in `nudges.texts`.
        variants: further nudge texts, by the `variant` of a sighting.
        notice: text for a person, where one is told.
        notices: other texts for a person, by the `variant` of a sighting.
        of_session: whether one detector serves all agents of a session and is kept after a user message.
        outlives_user: whether a user message does not end the pattern; only of detectors `of_session`.
        reported: sort position of its sightings within one event. Output ids derive from that order, so it must not
            change; it is not the precedence.
        wants_action: whether only an action of the model, or the end of its turn, ends the pattern.
        ended_by_progress: whether a new successful action ends the pattern.
        ended_by_call: whether the same call ends the pattern when it finishes without showing it.
        finishes: calls whose finish it handles: all; `repeated`, which gave this result before, or wait; or `programs`,
            which a tool runs for its caller.
        outgrown: whether the pattern ends when it has not repeated for a whole window of steps.
    """

    pattern: ClassVar[PatternType]
    ends_with: ClassVar[str]
    texts: ClassVar[Texts]
    variants: ClassVar[Mapping[str, Texts]] = {}
    notice: ClassVar[str] = "The agent repeats itself ({pattern}): {count} times so far, the last call was {request}."
    notices: ClassVar[Mapping[str, str]] = {}
    of_session: ClassVar[bool] = False
    outlives_user: ClassVar[bool] = False
    reported: ClassVar[int] = 100
    wants_action: ClassVar[bool] = False
    ended_by_progress: ClassVar[bool] = False
    ended_by_call: ClassVar[bool] = False
    finishes: ClassVar[Literal["all", "repeated", "programs"]] = "all"
    outgrown: ClassVar[bool] = False

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether an open pattern is over, judged by the state after the current event."""
        del active, ctx
        return False

    @classmethod
    def template(cls, active: ActivePattern, severity: int, strength: int, rules: RuleSet) -> str:
        """Text of a nudge, with placeholders: the operator's for the severity, else its own for the strength.

        Severity and strength are 1 to 3; the strength is lower where the pattern, or the level of nudges, allows less.
        """
        texts = cls.variants[active.variant] if active.variant else cls.texts
        return rules.nudges.texts.get(f"{active.pattern}.{SEVERITIES[severity - 1]}") or texts[strength - 1]

    # --- while detection is on ----------------------------------------------------------------------------------------

    def on_call(self, call: CallRecord, ctx: EventContext) -> None:
        """Handle a started call."""

    def on_success(self, tool_name: str, ctx: EventContext) -> None:
        """Handle a success of a tool, also from a cache or after its deadline; called only where policies exist."""

    def on_progress(self, tool_name: str) -> None:
        """Handle a new successful action of a tool, or a changed workspace (empty name); called before `on_finish`."""

    def on_effect(self, tool_name: str) -> None:
        """Handle what may have changed something: a new success of unknown effect, a cancelled call (empty name). First."""

    def on_compacted(self) -> None:
        """Handle the shortening of the model's context: what it has read it may read again."""

    def on_input(self) -> None:
        """Handle that something other than the user spoke to the model: a report, another agent, a timer, a hook."""

    def on_news(self) -> None:
        """Handle a success that brings news (`FinishedCall.news`); called before `on_finish`."""

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """Handle a finished call of those that `finishes` names."""

    def on_failure(self, done: FinishedCall, ctx: EventContext) -> None:
        """Handle a failed call; called after `on_finish`."""

    def on_cycle(self, runs: Sequence[int], ctx: EventContext) -> None:
        """Handle the last call of a step that continues a cycle; called after `on_failure`.

        `runs` are, for each period from one step on, how many steps in a row equal the step one period earlier.
        """

    def on_message(self, message: SpokenText, ctx: EventContext) -> None:
        """Handle a message of the model; not called for thoughts."""

    def on_text(self, message: SpokenText, ctx: EventContext) -> None:
        """Handle a message or a thought of the model; called after `on_message`."""

    def on_turn(self, ctx: EventContext) -> None:
        """Handle the end of the open turn."""

    # --- always -------------------------------------------------------------------------------------------------------

    def on_act(self, call: CallRecord) -> None:
        """Handle a tool call of the agent; called before `on_call`."""

    def on_turn_start(self, ctx: EventContext) -> None:
        """Handle the start of a turn."""

    def on_turn_over(self, ctx: EventContext, *, ended: bool) -> None:
        """Handle the end of the open turn, before `on_turn`; `ended` is False if the start of the next one ended it."""

    def on_user(self, ctx: EventContext) -> None:
        """Handle a user message or the session's end; called only for `of_session` detectors, others are recreated."""

    def due(self, ctx: EventContext) -> int:
        """Time at which the detector next has something to report without an event, milliseconds; 0 never."""
        del ctx
        return 0

    def on_due(self, ctx: EventContext) -> None:
        """Report what is due at `ctx.emit.at`; nothing if the time of `due` has not been reached."""

    def on_overdue(self, call: CallRecord, ctx: EventContext) -> None:
        """Handle a call of the current agent that has passed its deadline."""

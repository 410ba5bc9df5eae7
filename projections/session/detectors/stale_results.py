"""Detectors of results that bring nothing new: reads of what was seen, and known answers to other requests."""

from __future__ import annotations

import re
from zlib import crc32

import msgspec
import orjson

from ....schemas.vocabulary import PatternType, ToolClass
from ...calls.fingerprints import digest
from ...calls.tool_class import reads_by_sql
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, CallRecord, EventContext, PatternSighting
from ..shown_lines import MAX_ECHO_BYTES, MAX_NOTHING_BYTES, NO_LINES
from ..steps import PAUSED, WAITED
from .detector import FinishedCall, PatternDetector

TELLING_BYTES = 12  # A shorter result is known only if the call before gave the same one

MAX_ANSWERS = 8
MAX_ANSWERED_TOOLS = 16
_EXACT_SEARCHES = frozenset(
    "grep glob search_dir search_file find_file codesearch search_files find_files file_search grep_search".split()
)


EACH_NAMED = 3  # Of requests that go through things by name and get one answer, one of so many counts

MAX_NAMED_BYTES = 300
MAX_FRAMES = 8
MAX_NAME_CHARS = 120
_FREE_TEXT = frozenset(
    """q query search pattern regex regexp text question prompt keyword keywords input expression filter message
    thought code script sql statement command cmd description""".split()
)
_PAGING = re.compile(r"page|offset|cursor|skip|limit|after|before|start|end|from|to\b|line|seq|index|size|token")
_PLACE = re.compile(r"(?:page|offset|cursor|skip|limit|start)[=/]", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:id|ids|nr|no|number|key|code|sku)\Z")


def frames_of(call: CallRecord, size: int) -> set[int]:
    """Checksums of what is left of a request without one name in it, for each of its names.

    Names are words that stand for a thing: a path, an address, a host, an id, a city; not free text, and no place in a
    list or a file; any word of SQL whose result is a bare value. Two requests with a common one ask the same of two
    things. `size` is that of the result in bytes: none if it is long, as two things are seldom so alike.
    """
    if size > MAX_NAMED_BYTES:
        return set()
    shown, text = call.request.shown, call.request.text()
    if call.runs or reads_by_sql(text):
        is_bare = not call.runs and size < TELLING_BYTES + 2
        words = text.split() if call.runs == "shell" or is_bare else []
        names = [place for place, word in enumerate(words) if is_bare or _is_address(word)][:MAX_FRAMES]
        return {crc32(" ".join([*words[:place], *words[place + 1 :]]).encode()) for place in names}
    try:
        args = orjson.loads(shown)
    except orjson.JSONDecodeError:
        return set()
    if not isinstance(args, dict):
        return set()
    named = [name for name, value in args.items() if _is_name(name, value)][:MAX_FRAMES]
    return {crc32(orjson.dumps([name, {other: args[other] for other in args if other != name}])) for name in named}


def _is_name(field: str, value: object) -> bool:
    """Whether the value of an argument is the name of a thing."""
    plain = field.lower()
    if plain in _FREE_TEXT or _PAGING.search(plain):
        return False
    if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
        return _NUMBERED.search(plain) is not None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARS:
        return False
    return not any(map(str.isspace, value)) and not _PLACE.search(value)


def _is_address(word: str) -> bool:
    """Whether a word of a command line is a path, a file name, a host or an address."""
    has_name = not word.startswith("-") and any(map(str.isalpha, word)) and any(mark in word for mark in "/\\.:")
    return has_name and len(word) <= MAX_NAME_CHARS and not _PLACE.search(word)


class RereadDetector(PatternDetector, array_like=True):
    """Detector of reads whose lines were all seen before: second passes, overlapping windows.

    Holds when reads in a row bring no line that the session has not seen, by a sketch of the lines. Results below
    twelve bytes are known only if the call before gave the same; searches that find nothing, and the same look after a
    wait, are neutral. Of reads that go through things by name, one after another, every third counts.

    Ends with a read that brings news, or a new successful action. After the context was compacted everything is new.

    Known false alarms: a file that is read again on purpose, after something else was done with it outside of the session.
    """

    pattern = PatternType.REREAD
    ends_with = "news, or progress"
    texts = (
        "The last {count} reads showed nothing that you have not seen before, the last one {request}. Work with what "
        "you have, or name what is missing and look for it elsewhere. If you are done, end your turn.",
        "The last {count} reads showed only what you have seen before, the last one {request}. Further reads of it will "
        "bring nothing: act on what you know, or end your turn and say what is missing.",
    )
    reported = 5
    ended_by_progress = True

    count: int = 0  # steps with such reads
    step: int = -1
    last: int = 0  # fingerprint of the result of the call before
    event_ids: list[str] = []
    since_ms: int = 0  # start of the first of these reads, milliseconds
    frames: list[int] = []  # of the latest of them, as `frames_of`
    named: int = 0  # how many of them went through things by name

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether a result with news has reset the count."""
        del active, ctx
        return not self.count

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """Count a read without news; news reset the count."""
        verdict, call = done.verdict, done.call
        before, self.last = self.last, verdict.result
        if done.news or (verdict.size < TELLING_BYTES + 2 and before != verdict.result and not verdict.failed):
            self.count = 0
            return
        if call.tool_class is not ToolClass.READ or not done.known or verdict.failed or call.waits:
            return
        if done.equal and ctx.state.steps.waited_since(done.same[-1].step, WAITED | PAUSED):
            return
        if verdict.size < MAX_NOTHING_BYTES and verdict.shown.is_nothing():
            return
        frames, named = frames_of(call, verdict.size), False
        if not self.count:
            self.since_ms, self.event_ids, self.named = call.started_ms, [], 0
        elif self.step == call.step:
            return
        else:
            named = before == verdict.result and not done.same and not frames.isdisjoint(self.frames)
        self.step, self.frames = call.step, sorted(frames)
        if named:
            self.named += 1
            if self.named % EACH_NAMED:
                return
        self.count += 1
        self.event_ids = [*self.event_ids[1 - MAX_CAUSES :], done.event.id]
        severity = ctx.rules.behaviour.reread.step(self.count)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, 0, self.count, [call.tool_name], self.event_ids, "act on what has been read",
                since_ms=self.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def on_progress(self, tool_name: str) -> None:
        """Reset the count."""
        del tool_name
        self.count = 0

    def on_compacted(self) -> None:
        """Reset the count."""
        self.count = 0


class ToolAnswers(msgspec.Struct, array_like=True):
    """Answers of one tool, or of one program of a shell."""

    tool: str
    answers: list[int]  # fingerprints of its latest different answers
    calls: list[int]  # fingerprints of the calls that gave known ones
    event_ids: list[str]
    step: int = -1
    # how often it gave a known answer to another request; an exact search that finds nothing counts half
    count: float = 0.0
    since_ms: int = 0
    frames: list[int] = []  # of the latest of these requests, as `frames_of`


class StagnationDetector(PatternDetector, array_like=True):
    """Detector of a tool that answers other requests with an answer already seen.

    Holds when a tool (of a shell: one program) gives answers that it has given before, to requests with other
    arguments, with no new answer of it between. Lines that echo the request do not count. An exact search that finds
    nothing counts half, and one of many things that are gone through by name a third, unless the answer is an error.
    Exempt: actions, shell lines of unknown effect, code that an interpreter runs without an error, acknowledgements of
    one word, and empty results of other tools, which some clients leave out.

    Ends with a new answer of the tool, or a new successful action.

    Known false alarms: a service that answers every request with the same sentence and does its work.
    """

    pattern = PatternType.STAGNATION
    ends_with = "another answer of the tool, or progress"
    texts = (
        "{count} different requests to {tool_name} brought answers that you already had, the last one {request}. Other "
        "words will likely bring the same: use the answer, or look elsewhere. If you are done, end your turn.",
        "{count} different requests to {tool_name} brought only known answers, the last one {request}. Stop varying the "
        "request: say what you need to know, take another way, or end your turn.",
    )
    reported = 10
    ended_by_progress = True

    tools: list[ToolAnswers] = []  # the latest tools that answered, the one that answered last at the end

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether a new answer has reset the count."""
        del ctx
        return all(digest(one.tool.encode()) != active.fingerprint or not one.count for one in self.tools)

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """Count a known answer to another request; a new answer resets the count of the tool."""
        verdict, call = done.verdict, done.call
        if (verdict.failed and not verdict.answer) or call.waits or call.tool_class in _EXEMPT_CLASSES:
            return
        shown = NO_LINES if verdict.failed else verdict.shown
        empty = not shown
        if call.may_change and (empty or call.runs == "shell" or shown.is_acknowledgement()):
            return
        if call.may_change and call.runs and not shown.tells_error():
            return
        if empty and (verdict.size > 2 or not call.runs):
            return
        answer = verdict.result if verdict.size > MAX_ECHO_BYTES else shown.answer()
        tool = f"{call.tool_name}:{call.command}" if call.command else call.tool_name
        known = next((one for one in self.tools if one.tool == tool), None)
        if known is None:
            self.tools.append(ToolAnswers(tool, [answer], [call.fingerprint], []))
            del self.tools[:-MAX_ANSWERED_TOOLS]
            return
        if answer not in known.answers:
            known.count, known.event_ids = 0.0, []
            known.calls = [call.fingerprint]
            known.answers = [*known.answers[1 - MAX_ANSWERS :], answer]
            return
        same_again = known.answers[-1] == answer
        if not same_again:
            known.answers.remove(answer)
            known.answers.append(answer)
        if done.equal:
            return
        if known.step != call.step and call.fingerprint not in known.calls:
            if not known.count:
                known.since_ms = call.started_ms
            nothing = empty or shown.is_nothing()
            half = nothing and (call.runs == "shell" or call.tool_name.lower() in _EXACT_SEARCHES)
            frames = frames_of(call, verdict.size)
            named = same_again and not frames.isdisjoint(known.frames) and not shown.tells_error()
            known.count += 1 / EACH_NAMED if named else 0.5 if half else 1
            known.step, known.frames = call.step, sorted(frames)
            known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], done.event.id]
        known.calls = [*known.calls[1 - MAX_CAUSES :], call.fingerprint]
        severity = ctx.rules.behaviour.stagnation.step(known.count)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, digest(tool.encode()), int(known.count), [call.tool_name], known.event_ids,
                "use the answer, or look elsewhere", since_ms=known.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def on_progress(self, tool_name: str) -> None:
        """Forget all answers."""
        del tool_name
        self.tools = []

    def on_compacted(self) -> None:
        """Forget all answers."""
        self.tools = []


_EXEMPT_CLASSES = frozenset({ToolClass.ACTION, ToolClass.PLANNING, ToolClass.INTROSPECTION})


_SHORTEST_COMMAND = 8
_INSIDE_WORD = frozenset(b"/._-")


class GrowingCommand(msgspec.Struct, array_like=True):
    """Latest command of a tool: its length and checksum, how often it has grown, and since when (milliseconds)."""

    tool_name: str
    length: int
    checksum: int
    event_ids: list[str]
    count: int = 1
    since_ms: int = 0


class SelfAppending(PatternDetector, array_like=True):
    """Detector of a command that grows by a word at each call and brings no news.

    Holds when each command of a tool contains the one before, with something added at its end or its start as words
    of their own.

    Ends with news, or a command that does not contain the one before.

    Known false alarms: a pipeline that is built step by step and so far only orders the same lines anew.
    """

    pattern = PatternType.SELF_APPENDING
    ends_with = "news, or another command"
    texts = (
        "{tool_name} was called {count} times with a command that only grew, the last one {request}, and it brought "
        "nothing new. Look at what the command does before you add to it.",
        "{count} times the command only grew and brought nothing new; it is now {request}. Adding to it does not help: "
        "start afresh with one simple command, or end your turn and say what you need.",
    )
    reported = 11
    finishes = "programs"

    commands: list[GrowingCommand] = []  # the latest command of each tool

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether the command has stopped growing."""
        del ctx
        return all(digest(one.tool_name.encode()) != active.fingerprint or one.count < 2 for one in self.commands)

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """Compare the command with the one before."""
        call = done.call
        if not (text := call.request.command()):
            return
        commands = self.commands
        known = next((one for one in commands if one.tool_name == call.tool_name), None)
        if known is None:
            known = GrowingCommand(call.tool_name, len(text), crc32(text), [done.event.id], 1, call.started_ms)
            commands.append(known)
            del commands[:-MAX_ANSWERS]
            return
        grown = not done.news and _has_grown(known, text)
        known.length, known.checksum = len(text), crc32(text)
        if not grown:
            known.event_ids, known.count, known.since_ms = [done.event.id], 1, call.started_ms
            return
        known.count += 1
        known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], done.event.id]
        severity = ctx.rules.behaviour.self_appending.step(known.count)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, digest(call.tool_name.encode()), known.count, [call.tool_name],
                known.event_ids, "start afresh with one simple command", since_ms=known.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)


def _has_grown(before: GrowingCommand, text: bytes) -> bool:
    """Whether a command is the one before with something added at its end or its start, as words of their own."""
    length = before.length
    if not _SHORTEST_COMMAND <= length < len(text):
        return False
    if crc32(text[:length]) == before.checksum:
        after = text[length]
        return not (after in _INSIDE_WORD or chr(after).isalnum())
    return crc32(text[-length:]) == before.checksum

"""What a nudge says: a text for every pattern and severity (docs/design/semantics.md#nudges).

Interrupts say PAUSED: BLOCKED is trust's word. A nudge states facts and asks for the next step; it never tells the
model to stop using tools. Operators override texts in `nudges.texts`.
"""

from __future__ import annotations

from ...rules.behaviour import filled
from ...rules.rules import Rules
from ...schemas.vocabulary import Pattern
from .announcements import MESSAGES_WITHOUT_CALL
from .patterns import SEVERITIES
from .prerequisites import own_text
from .state import ActivePattern
from .streaks import READS_WITH_NEWS

TEXTS: dict[str, tuple[str, str, str]] = {
    Pattern.REPETITIVE_CALLS: (
        "You've called {tool_name} {count} times with the same result. Consider if you have the information needed to proceed.",
        "NOTICE: You are in a loop: {count} identical calls of {tool_name}, the same result each time. Stop and take action on what you've learned.",
        "PAUSED: {count} identical calls of {tool_name} brought nothing new. The session waits for the user.",
    ),
    Pattern.ERROR_RETRY_LOOP: (
        "{tool_name} has failed the same way {count} times. Read the error and change something before trying again.",
        "NOTICE: {count} unchanged retries of {tool_name} failed the same way. Do not repeat it; fix the cause or use another way.",
        "PAUSED: {tool_name} failed the same way {count} times in a row. The session waits for the user.",
    ),
    Pattern.ALTERNATING_LOOP: (
        "The same calls have come round {count} times with the same results. Consider what is missing to move on.",
        "NOTICE: You are going in a circle ({count} laps, last {tool_name}). Break it: use the results you have or try something new.",
        "PAUSED: The same cycle of calls has run {count} times. The session waits for the user.",
    ),
    Pattern.INTROSPECTION_LOOP: (
        "You have the tool list. Proceed with the actual task instead of re-querying tools.",
        "NOTICE: Stop querying tool metadata ({count} calls). You have sufficient information. Execute the task.",
        "PAUSED: Stuck in an introspection loop ({count} calls). The session waits for the user.",
    ),
    Pattern.READ_ONLY_LOOP: (
        "The last {count} reads brought nothing new. Consider acting on what you have read.",
        "NOTICE: {count} reads without anything new. Act on what you know, or say what is missing.",
        "PAUSED: {count} reads without an action. The session waits for the user.",
    ),
    READS_WITH_NEWS: (
        "That makes {count} reads in a row. Consider acting on what you have read.",
        "NOTICE: {count} reads in a row without an action. Act on what you know, or say what is missing.",
        "PAUSED: {count} reads in a row without an action. The session waits for the user.",
    ),
    Pattern.SAME_ERROR_LOOP: (
        "{tool_name} has failed the same way {count} times with different arguments. The arguments may not be the problem; read the error.",
        "NOTICE: {count} calls of {tool_name} failed with the same error, whatever the arguments. Stop varying them; find the cause or use another way.",
        "PAUSED: {tool_name} failed with the same error {count} times. The session waits for the user.",
    ),
    Pattern.PAGING_LOOP: (
        "You've paged through {tool_name} {count} times. A search, or a larger piece at once, may get you there sooner.",
        "NOTICE: {count} pages read with {tool_name}, one after the other. Search for what you need, or act on what you have read.",
        "PAUSED: {tool_name} was paged through {count} times. The session waits for the user.",
    ),
    Pattern.PLANNING_LOOP: (
        "The plan has been revised {count} times without a step of it. Consider carrying out the first step now.",
        "NOTICE: {count} planning calls and nothing carried out. Stop planning. Take the first step of the plan now.",
        "PAUSED: {count} planning calls without a step taken. The session waits for the user.",
    ),
    Pattern.TOOL_AVOIDANCE: (
        "{required_tool} was named {count} times but not called. If it is what you need, call it.",
        "NOTICE: {required_tool} was named {count} times and never called. Call it NOW, or say why it cannot be used.",
        "PAUSED: {required_tool} was named {count} times and never called. The session waits for the user.",
    ),
    Pattern.PREREQUISITE_VIOLATED: (
        "{required_tool} comes before {tool_name} here. Please call {required_tool} first.",
        "NOTICE: {tool_name} was called without {required_tool} {count} times. Call {required_tool} before going on.",
        "PAUSED: {tool_name} was called without {required_tool} {count} times. The session waits for the user.",
    ),
    Pattern.UNKNOWN_TOOL: (
        "There is no tool {tool_name}. Use a tool from the list you were given.",
        "NOTICE: {count} calls to tools that do not exist, last {tool_name}. Check the list of tools and call one that is on it.",
        "PAUSED: {count} calls to tools that do not exist. The session waits for the user.",
    ),
    Pattern.MONOLOGUE: (
        "You've written {count} messages without calling a tool. If there is work left, take the next step; if not, end your turn.",
        "NOTICE: {count} messages in a row and no tool call. Call the tool you need NOW, or hand over to the user.",
        "PAUSED: {count} messages without a tool call. The session waits for the user.",
    ),
    Pattern.TEXT_LOOP: (
        "You've written the same text {count} times. Consider what is new, and go on from there.",
        "NOTICE: You are repeating yourself: the same text {count} times. Stop, and take the next step instead.",
        "PAUSED: The same text was written {count} times. The session waits for the user.",
    ),
    Pattern.STALLED_TURN: (
        "Nothing has come for {seconds} seconds in this turn. Please go on, or end the turn.",
        "NOTICE: This turn has stood still for {seconds} seconds. Take the next step NOW, or end the turn.",
        "PAUSED: This turn has stood still for {seconds} seconds. The session waits for the user.",
    ),
    Pattern.STALLED_CALL: (
        "{tool_name} has not answered for {seconds} seconds and is past its deadline. Consider going on without it.",
        "NOTICE: {tool_name} has not answered for {seconds} seconds. Do not wait for it; check its state or use another way.",
        "PAUSED: {tool_name} has not answered for {seconds} seconds. The session waits for the user.",
    ),
    Pattern.CALL_BUDGET: (
        "This turn has made {count} calls. Consider summing up what is done and what is left.",
        "NOTICE: {count} calls in one turn. Bring the current step to an end and report to the user.",
        "PAUSED: {count} calls in one turn. The session waits for the user.",
    ),
    MESSAGES_WITHOUT_CALL: (
        "Your last messages were followed by no call. If you announced work, please carry it out; if not, end your turn.",
        "NOTICE: Message after message, and no call of a tool that does the work. Call it NOW, or hand over to the user.",
        "PAUSED: Message after message without an action. The session waits for the user.",
    ),
    Pattern.ANNOUNCE_NO_ACTION: (
        "You mentioned proceeding but haven't called an action tool yet. Please execute the planned action.",
        "NOTICE: You've announced action {count} times without executing. Call the appropriate tool NOW.",
        "PAUSED: Repeated announcements without action. The session waits for the user.",
    ),
}  # fmt: skip


def text_for(active: ActivePattern, severity: int, rules: Rules, *, seconds: int) -> str:
    """Text of a nudge; `severity` is 1 minor to 3 severe. A policy's own text wins, then the operator's, then ours."""
    word = SEVERITIES[severity - 1]
    template = rules.nudges.texts.get(f"{active.pattern}.{word}") or TEXTS[active.text or active.pattern][severity - 1]
    if active.pattern == Pattern.PREREQUISITE_VIOLATED:
        template = own_text(active.fingerprint, word, rules) or template
    return filled(
        template,
        tool_name=active.tool_name or "the tool",
        count=active.count,
        pattern=active.pattern.replace("_", " "),
        seconds=seconds,
        required_tool=active.required_tool or "the tool",
    )

"""What a nudge says: a text for every pattern and severity, in the seed's tone (seed 2, Nudge Injection).

Interrupts say PAUSED: BLOCKED is trust's word. A nudge states facts and asks for the next step; it never tells the
model to stop using tools. Operators override texts in `nudges.texts`.
"""

from __future__ import annotations

from ...schemas.rules import NudgeRules
from ...schemas.vocabulary import Pattern

_GENERAL = (
    "This looks like {pattern} ({count} times). Please proceed with the task.",
    "NOTICE: {pattern} was seen {count} times. Change the approach and take the next step now.",
    "PAUSED: {pattern} was seen {count} times. The session waits for the user.",
)

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
    Pattern.ANNOUNCE_NO_ACTION: (
        "You mentioned proceeding but haven't called an action tool yet. Please execute the planned action.",
        "NOTICE: You've announced action {count} times without executing. Call the appropriate tool NOW.",
        "PAUSED: Repeated announcements without action. The session waits for the user.",
    ),
}  # fmt: skip


def text_for(pattern: str, severity: int, *, tool_name: str, count: int, rules: NudgeRules) -> str:
    """Text of a nudge; `severity` is 1 minor to 3 severe. Own texts win; names they do not know stay as written."""
    word = ("minor", "moderate", "severe")[severity - 1]
    template = rules.texts.get(f"{pattern}.{word}") or TEXTS.get(pattern, _GENERAL)[severity - 1]
    readable = str(pattern).replace("_", " ")
    for name, value in (("{tool_name}", tool_name or "the tool"), ("{count}", str(count)), ("{pattern}", readable)):
        template = template.replace(name, value)
    return template

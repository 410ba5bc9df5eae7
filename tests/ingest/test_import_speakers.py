"""Who speaks in a text that stands in the user's name."""

from __future__ import annotations

import pytest
from trustfold.ingest.speakers import Heard, heard


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fix it", Heard("fix it", "")),
        ("  ", Heard("", "")),
        ("<div>is this well formed?</div> I doubt it", Heard("<div>is this well formed?</div> I doubt it", "")),
        ("<skill>\n<name>x</name>\n</skill>", Heard("", "client")),
        ("<system-reminder>a</system-reminder>\n<ide_selection>b</ide_selection>\n go", Heard("go", "client")),
        ("<system-reminder>cut off", Heard("", "client")),
        ("<hook_context>careful</hook_context>\n\ngo", Heard("go", "hook")),
        ("<task-notification>done</task-notification>\nFull transcript: /tmp/x", Heard("", "report")),
        ("<teammate-message teammate_id='a'>go</teammate-message>", Heard("", "agent")),
        ("Stop hook feedback:\nrun the tests", Heard("", "hook")),
        ("# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>be good</INSTRUCTIONS>", Heard("", "client")),
        ("# In app browser:\n- open\n\n## My request for Codex:\nrun it\n", Heard("run it", "")),
    ],
)
def test_who_speaks(text: str, told: Heard) -> None:
    """Tags and first words of the clients; what the user writes may come after a reminder, not after a report."""
    assert heard(text) == told


def test_words_are_the_users() -> None:
    """As the guard counts them."""
    assert heard("<system-reminder>one two</system-reminder> three - four").words == 2

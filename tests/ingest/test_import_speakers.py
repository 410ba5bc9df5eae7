"""Who speaks in a text that stands in the user's name."""

from __future__ import annotations

import pytest
from trustfold.ingest.speakers import TextSpeakers, heard


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fix it", TextSpeakers("fix it", "")),
        ("  ", TextSpeakers("", "")),
        ("<div>is this well formed?</div> I doubt it", TextSpeakers("<div>is this well formed?</div> I doubt it", "")),
        ("<skill>\n<name>x</name>\n</skill>", TextSpeakers("", "client")),
        ("<system-reminder>a</system-reminder>\n<ide_selection>b</ide_selection>\n go", TextSpeakers("go", "client")),
        ("<system-reminder>cut off", TextSpeakers("", "client")),
        ("<hook_context>careful</hook_context>\n\ngo", TextSpeakers("go", "hook")),
        ("<task-notification>done</task-notification>\nFull transcript: /tmp/x", TextSpeakers("", "report")),
        ("<teammate-message teammate_id='a'>go</teammate-message>", TextSpeakers("", "agent")),
        ("Stop hook feedback:\nrun the tests", TextSpeakers("", "hook")),
        ("# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>be good</INSTRUCTIONS>", TextSpeakers("", "client")),
        ("# In app browser:\n- open\n\n## My request for Codex:\nrun it\n", TextSpeakers("run it", "")),
    ],
)
def test_who_speaks(text: str, told: TextSpeakers) -> None:
    """Tags and first words of the clients; what the user writes may come after a reminder, not after a report."""
    assert heard(text) == told


def test_words_are_the_users() -> None:
    """As the guard counts them."""
    assert heard("<system-reminder>one two</system-reminder> three - four").words == 2

"""Tables where there is little room: words stay whole, and what does not fit is named."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from trustfold.cli.history_view import table_of
from trustfold.history.reports import BY_NAME


def drawn(columns: list[str], rows: list[list[object]], width: int) -> str:
    """A table as it stands in a terminal."""
    out = StringIO()
    Console(file=out, width=width, color_system=None).print(table_of(columns, rows, width=width))
    return out.getvalue()


NEEDING = [
    "state", "subject", "cause", "since", "orders", "sessions", "sessions_hit", "waiting", "parts", "workspace",
    "last_news", "changes_at",
]  # fmt: skip
NEEDED: list[object] = [
    "escalated", "error_retry_loop", "consecutive failures", "2026-01-05 10:00:12", "trustfold recover 'deploy'",
    "session-17", 3, "one call", "trust deploy", "payments", "2026-01-05 10:00:40", "2026-01-05 10:00:50",
]  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_word_of_what_needs_somebody_is_broken(width: int) -> None:
    """Names of columns neither; the least important columns are last, and named where they are left out."""
    text = drawn(NEEDING, [NEEDED], width)
    words = set(text.split())
    left_out = re.search(r"no room for: (.*); --json", " ".join(text.split()))
    gone = left_out[1].split(", ") if left_out else []
    for name, value in zip(NEEDING, NEEDED, strict=True):
        if name.replace("_", " ") not in gone:
            assert set(f"{name.replace('_', ' ')} {value}".split()) <= words, name
    assert gone == [name.replace("_", " ") for name in NEEDING[len(NEEDING) - len(gone) :]]
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("session", ["0197f3a2-5b1c-7d3e-9a44-0c1f2e3d4b5a", "ses_6f3b1c9d8ffeQkT2vGmX4PzR1a"])
def test_the_id_of_a_session_stands_on_one_line(session: str, width: int) -> None:
    """People copy it; columns of less importance give way."""
    columns = ["session", "workspace", "reason", "calls", "model"]
    row: list[object] = [session, "/home/ada/projects/shop", "no such file or directory", 12, "claude-opus-4.5"]
    assert session in drawn(columns, [row], width).split()


def test_the_columns_of_what_needs_somebody_stand_by_importance() -> None:
    """The last ones are those that a narrow terminal does without."""
    assert f"SELECT {', '.join(NEEDING)}" in BY_NAME["now"].sql


@given(
    st.lists(
        st.lists(st.text("abcdefgh ", max_size=22).map(str.strip) | st.integers(0, 10**9), min_size=4, max_size=4),
        min_size=1,
        max_size=4,
    ),
    st.integers(30, 120),
)
def test_every_short_word_that_is_shown_is_whole(rows: list[list[object]], width: int) -> None:
    """Whatever the values are."""
    names = ["one", "two", "three", "four"]
    text = drawn(names, rows, width)
    left_out = re.search(r"no room for: (.*); --json", " ".join(text.split()))
    shown = [number for number, name in enumerate(names) if not left_out or name not in left_out[1].split(", ")]
    allowed = {word for row in rows for number in shown for word in str(row[number]).split()} | set(names)
    letters = {word for word in re.sub(r"[─]", " ", text.partition("no room for")[0]).split() if word.isalpha()}
    assert letters <= allowed

"""Numbers of the Models page against what was planted, and answers after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded import rows, told
from story import Story
from trustfold.history import catalogue
from trustfold.history.catalogue import connect
from trustfold.history.charts import objects
from trustfold.history.filters import EVERYTHING, HistoryFilters
from trustfold.history.history_error import HistoryError
from trustfold.history.queries import ask
from trustfold.history.reports import BY_NAME
from trustfold.web.dashboard.history_answers import HistoryArchive
from trustfold.web.dashboard.models import _MODELS


def test_sessions_and_patterns_of_a_model_are_those_of_the_questions(tmp_path: Path) -> None:
    """Sessions that only talk count among its sessions; patterns of different kinds are different."""
    story = Story(model="m")
    for number in range(2):
        story.moved(session=f"talks-{number}")
        for _ in range(8):
            story.says("Let me look at the file once more to be sure of what it says.")
    for number in range(3):
        story.moved(session=f"works-{number}").works("read_file", {"path": str(number)})
    story.moved(session="fails").fails("bash", {"command": "make"}, message="no rule", times=9)
    told(tmp_path, story)
    with connect(tmp_path, threads=2) as connection:
        (line,) = objects(ask(connection, _MODELS, 9))
    ((times, of_sessions),) = rows(tmp_path, "SELECT sum(times)::INT, any_value(of_sessions) FROM pattern_rates")
    assert (line["sessions"], of_sessions) == (6, 6)
    assert line["patterns"] == times


def test_an_answer_after_a_failure_has_its_own_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue of which only some views have new filters is not taken for the old one."""
    told(tmp_path, Story().works("bash").works("grep"))
    made = catalogue._narrowing

    def broken(*arguments: Any) -> Iterator[tuple[str, str, str]]:
        yield next(made(*arguments))
        yield "recorded_events", "SELECT no_such_column", ""

    async def asked() -> list[int]:
        archive, found = HistoryArchive(tmp_path), []
        archive._threads._max_workers = 1
        found.append((await archive.ask(BY_NAME["overview"], EVERYTHING)).answer.rows[0][2])
        monkeypatch.setattr(catalogue, "_narrowing", broken)
        with pytest.raises(HistoryError):
            await archive.ask(BY_NAME["overview"], HistoryFilters(tools=("grep",)))
        monkeypatch.setattr(catalogue, "_narrowing", made)
        found.append((await archive.ask(BY_NAME["overview"], EVERYTHING, 49)).answer.rows[0][2])
        archive.close()
        return found

    assert asyncio.run(asked()) == [2, 2]

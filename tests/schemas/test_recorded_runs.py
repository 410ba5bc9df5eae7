"""Recorded runs of real agents: all of what they really did can be read."""

import gzip
import os
from pathlib import Path

import pytest
from trustfold.schemas.codec import decode_event
from trustfold.schemas.events import ToolCallFinished, ToolCallStarted, epoch_ms, json_of

HOME = Path(os.environ.get("TRUSTFOLD_TRACES") or Path(__file__).parents[3] / "shared" / "traces")
FILES = sorted(HOME.glob("*.ndjson.gz")) if HOME.is_dir() else []


@pytest.mark.skipif(not FILES, reason=f"no recorded runs in {HOME}; TRUSTFOLD_TRACES names another folder")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.partition(".")[0])
def test_every_recorded_event_decodes(file: Path) -> None:
    """No line of a recorded run is refused, and the raw values in it can be built."""
    with gzip.open(file) as lines:
        for line in lines:
            event = decode_event(line)
            assert epoch_ms(event.time) > 0
            if isinstance(event, ToolCallStarted):
                assert isinstance(json_of(event.args), dict)
            elif isinstance(event, ToolCallFinished):
                json_of(event.result)


def test_the_folder_of_recorded_runs_is_complete_where_it_exists() -> None:
    """A folder that was named by hand must hold something."""
    if "TRUSTFOLD_TRACES" in os.environ:
        assert FILES, f"TRUSTFOLD_TRACES={HOME} holds no *.ndjson.gz"

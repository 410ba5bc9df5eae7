"""`trustfold quality`: list, rank, mark and restore, over a store and a running server."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from command_line import trustfold, up
from fixed_rules import Rules
from rich.console import Console
from story import Story
from trustfold.cli.quality import embedding_similarity, models_table, quality_table, rank_table
from trustfold.cli.status import details
from trustfold.errors import ConfigError
from trustfold.projections.ranking import ToolRank
from trustfold.schemas.decision_text import line_of_record
from trustfold.schemas.public_state import ModelUpdated, QualityUpdated
from trustfold.streams.embedded.engine import EmbeddedEngine

pytestmark = pytest.mark.usefixtures("fixed_rules_file")

WISH = "translate english to french"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store in which two translators were called, and the one by the network broke down."""
    story = Story()
    story.now = datetime.now(UTC)
    story.works("offline_translator", scenario=WISH).fails("nmt_translator", with_="crash", scenario=WISH)
    path = tmp_path / ".trustfold" / "trustfold.sqlite"
    with EmbeddedEngine.open(path, Rules()) as engine:
        engine.ingest([value for _, value in story.records])
    return path


def said(*arguments: str, cwd: Path) -> Any:
    """What a command prints as JSON."""
    done = trustfold("quality", *arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def shown(view: Any) -> str:
    """A view as plain text."""
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def test_the_list_shows_what_differs(store: Path, tmp_path: Path) -> None:
    """A tool that lost quality, its failures, and what it failed at; the others are not listed."""
    table = trustfold("quality", cwd=tmp_path).stdout.decode()
    assert "nmt_translator" in table
    assert "0.80 of 0.90" in table
    assert f"failed at: {WISH}" in " ".join(table.split())
    assert "offline_translator" not in table
    [state] = said(cwd=tmp_path)["states"]
    assert (state["key"], state["score"]) == ("nmt_translator", 0.8)


def test_mark_and_restore(store: Path, tmp_path: Path) -> None:
    """Two marks tag the tool, in the workspace that there is; restore gives it back clean."""
    mark = ("mark", "csv_parser", "--scenario", "parse JSON data", "--severity", "high", "--error", "not CSV")
    [first] = said(*mark, cwd=tmp_path)["states"]
    assert (first["score"], first["workspace_id"]) == (0.8, "w1")
    done = trustfold("quality", *mark, cwd=tmp_path)
    assert "not for: parse, json, data" in done.stdout.decode()
    done = trustfold("quality", "restore", "csv_parser", "--reason", "replaced", cwd=tmp_path)
    assert done.stdout.decode() == "✓ csv_parser has its registered score\n"
    assert [state["key"] for state in said(cwd=tmp_path)["states"]] == ["nmt_translator"]
    [half] = said("restore", "nmt_translator", "--score", "0.5", cwd=tmp_path)["states"]
    assert (half["score"], half.get("failed_scenarios")) == (0.5, None)


def test_rank_learns_from_what_failed(store: Path, tmp_path: Path) -> None:
    """The translator that worked comes first, the one that failed after it, and the reason is shown."""
    tools = [f"--tool={name}={WISH}" for name in ("nmt_translator", "offline_translator")]
    ranked = said("rank", WISH, *tools, cwd=tmp_path)["tools"]
    assert [one["tool"] for one in ranked] == ["offline_translator", "nmt_translator"]
    assert ranked[0]["rank"] == pytest.approx(0.9)
    assert ranked[1]["rank"] == pytest.approx((1 - 0.3) * 0.8, abs=1e-3)
    table = trustfold("quality", "rank", WISH, *tools, cwd=tmp_path).stdout.decode()
    assert table.index("offline_translator") < table.index("nmt_translator")
    assert "failed at" in table


def test_rank_knows_the_registered_tools(store: Path, tmp_path: Path) -> None:
    """Tools of the rules file compete with their scores and descriptions."""
    rules = tmp_path / "rules.toml"
    rules.write_text(f'[quality.tools.human]\nscore = 1.0\ndescription = "{WISH}"\n')
    ranked = said("rank", WISH, "--rules", str(rules), cwd=tmp_path)["tools"]
    assert (ranked[0]["tool"], ranked[0]["rank"]) == ("human", 1.0)


def test_a_running_server_is_asked_and_told(store: Path, tmp_path: Path) -> None:
    """With `up` over the store the same commands go to its address."""
    with up(cwd=tmp_path) as server:
        [state] = said("mark", "nmt_translator", "--severity", "low", "--url", server.url, cwd=tmp_path)["states"]
        assert state["score"] == 0.79
        [state] = said("--url", server.url, cwd=tmp_path)["states"]
        assert state["score"] == 0.79


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("restore", "nmt_translater"), "'nmt_translater' has nothing to restore; did you mean 'nmt_translator'?"),
        (("rank", WISH, "--tool", "=x"), "'=x' names no tool"),
        (("--store", "x", "rank", WISH), "options go after `rank`"),
        (("rank", WISH, "--embeddings", "m"), "add the extra embeddings: https://"),
        (("restore", "nmt_translator", "--score", "1.5"), "is not in the range"),
        (("mark", "t", "--severity", "dreadful"), "is not one of"),
    ],
)
def test_mistakes_are_explained(store: Path, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """What is wrong and what would be right, on standard error, exit code 2."""
    done = trustfold("quality", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr.decode()


def test_several_workspaces_need_a_choice(store: Path, tmp_path: Path) -> None:
    """Marks and ranks belong to one workspace."""
    said("mark", "nmt_translator", "--workspace", "w2", cwd=tmp_path)
    for arguments in (("mark", "nmt_translator"), ("rank", WISH)):
        done = trustfold("quality", *arguments, cwd=tmp_path)
        assert "there are several workspaces, w1, w2; choose with --workspace" in done.stderr.decode()
    assert "Workspace" in trustfold("quality", cwd=tmp_path).stdout.decode()
    [state] = said("--workspace", "w2", cwd=tmp_path)["states"]
    assert state["score"] == 0.85


def test_nothing_to_rank_is_said(tmp_path: Path) -> None:
    """An empty store and no tools named: how to name some."""
    EmbeddedEngine.open(tmp_path / "s.sqlite").close()
    done = trustfold("quality", "rank", WISH, "--store", "s.sqlite", cwd=tmp_path)
    assert "name some with --tool" in done.stderr.decode()
    assert b"every tool has" in trustfold("quality", "--store", "s.sqlite", cwd=tmp_path).stdout


# --- views ----------------------------------------------------------------------------------------------------------


ENVELOPE = {"schema_version": "1.0", "id": "s1", "time": "2026-03-01T00:00:00.000Z"}


def record(**fields: Any) -> dict[str, Any]:
    """A quality state in its wire form."""
    own = {"kind": "quality", "key": "[red]", "score": 0.4, "registered_score": 0.9, "failures": 7}
    return ENVELOPE | own | fields


def quality(**fields: Any) -> QualityUpdated:
    """A quality state."""
    return msgspec.convert(record(**fields), QualityUpdated)


def model(name: str, **fields: Any) -> ModelUpdated:
    """Statistics of a model."""
    own = {"kind": "model", "key": "bash|command=git", "model": name, "failures": 1, "workspace_id": "w1"}
    return msgspec.convert(ENVELOPE | own | fields, ModelUpdated)


def test_expired_tags_are_not_shown() -> None:
    """A tag counts as long as it lasts, whoever reads the state."""
    tags = {"tags": ["not-for-json", "not-for-xml"]}
    expires = {"not-for-json": "2026-02-01T00:00:00Z", "not-for-xml": "2026-04-01T00:00:00Z"}
    table = shown(quality_table([quality(**tags, tags_expire_at=expires)], NOW))
    assert "xml" in table
    assert "json" not in table


def test_model_tells_how_each_model_did_with_each_tool() -> None:
    """A row for each key and model, the worst model of a key first; several workspaces are told apart."""
    good = model("large-1", attempts=4, success_rate=0.75)
    bad = model("small-1", attempts=2, success_rate=0.5)
    lines = shown(models_table([good, bad])).splitlines()
    assert [line.split() for line in lines if "bash" in line] == [
        ["bash|command=git", "small-1", "2", "1", "50%"],
        ["bash|command=git", "large-1", "4", "1", "75%"],
    ]
    assert "Workspace" in shown(models_table([good, msgspec.structs.replace(bad, workspace_id="w2")]))


def test_status_tells_quality_and_models_of_a_key() -> None:
    """Next to trust and circuit: how good the tool is, and which model copes with it; markup is only text."""
    large = model("large-1", key="[red]", attempts=4, success_rate=0.75)
    told = shown(details("[red]", [quality(), large], [], NOW))
    assert "[red]  quality 0.40 of 0.90" in told
    assert "with large-1" in told
    assert "75%" in told
    assert "4, 1 failed" in told


def test_a_rank_shows_why() -> None:
    """A tag rules out, a past failure demotes."""
    table = shown(
        rank_table([ToolRank("a", 0.5, 0.8, 0.2, 0.9, failed_at=WISH), ToolRank("b", 0, 1, 0, 1, tag="not-for-x")])
    )
    assert f"failed at: {WISH}" in table
    assert "not-for-x" in table


@pytest.mark.parametrize(
    ("decision", "line"),
    [
        (
            {"type": "guarantee.violated", "guarantee": "max_cost_usd", "used": 1.2, "limit": 1.0},
            ("max cost usd exceeded", "1.2 of 1"),
        ),
        (
            {"type": "guarantee.warned", "guarantee": "max_recursive_calls", "used": 16, "limit": 20},
            ("max recursive calls nearly spent", "16 of 20"),
        ),
        ({"type": "state.updated", **record()}, ("quality state of [red]", "0.40 of 0.90")),
        (
            {"type": "state.updated", "kind": "model", "key": "bash", "model": "m", "attempts": 8},
            ("model state of bash", "m: 8 calls"),
        ),
    ],
)
def test_decisions_in_words(decision: dict[str, Any], line: tuple[str, str]) -> None:
    """What a replay or a history shows of them."""
    made = line_of_record(ENVELOPE | decision)
    assert (made.what, made.why) == line


# --- embeddings -----------------------------------------------------------------------------------------------------


def test_an_embedding_model_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own encode gives the vectors; nothing else of it is touched."""

    class FakeModel:
        """As the library's model: a name in, vectors out."""

        def __init__(self, name: str) -> None:
            if name == "missing":
                raise OSError("no such model")

        def encode(self, texts: list[str]) -> list[list[float]]:
            """Length and one."""
            return [[float(len(text)), 1.0] for text in texts]

    library = ModuleType("sentence_transformers")
    library.SentenceTransformer = FakeModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    assert embedding_similarity("some-model").scores("abc", ["xyz"]) == [pytest.approx(1.0)]
    with pytest.raises(ConfigError, match="'missing' cannot be loaded: no such model"):
        embedding_similarity("missing")

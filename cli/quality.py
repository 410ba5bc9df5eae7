"""`trustfold quality`: quality scores of tools, their ranking for a scenario, and orders that correct them.

See docs/design/semantics.md#tool-quality.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar, cast
from uuid import uuid4

import click
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..config import Settings
from ..errors import ConfigError
from ..projections.ranking import Candidate, EmbeddingSimilarity, Ranked, rank_tools
from ..schemas.commands import Command, QualityMark, QualityRestore
from ..schemas.public_state import public_state
from ..schemas.vocabulary import QualitySeverity
from .clients.base import Record, Target
from .clients.selection import target_of, target_options
from .operator import operator_name
from .render import console, echo, note, write_json
from .terminal import BAD, GOOD, QUIET, WARN

F = TypeVar("F", bound=Callable[..., None])

_workspace = click.option("--workspace", metavar="ID", help="Workspace of the tool, if there are several.")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_reason = click.option("--reason", metavar="TEXT", help="Reason, recorded in the history.")


def _with_target(command: F) -> F:
    """Decorator: adds the options that select the target, and passes the target to the command."""

    @target_options
    @wraps(command)
    def asking(*, store: str | None, url: str | None, bootstrap: str | None, **rest: Any) -> None:
        command(target=target_of(store, url, bootstrap), **rest)

    return cast("F", asking)


@click.group(invoke_without_command=True)
@target_options
@_workspace
@_json
@click.pass_context
def quality(
    context: click.Context,
    *,
    store: str | None,
    url: str | None,
    bootstrap: str | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Show tools whose quality differs from their registered score."""
    if context.invoked_subcommand is not None:
        if store or url or bootstrap or workspace or as_json:
            raise ConfigError(f"options go after `{context.invoked_subcommand}`")
        return
    target = target_of(store, url, bootstrap)
    states = _qualities(target, workspace)
    now = datetime.now(UTC)
    if as_json:
        write_json({"source": target.name, "time": now.isoformat(timespec="milliseconds"), "states": states})
    else:
        console().print(quality_table(states, now))


@quality.command()
@click.argument("scenario")
@click.option("--tool", "tools", multiple=True, metavar="NAME=PURPOSE", help="A tool to rank; repeatable.")
@click.option("--rules", "rules_file", metavar="FILE", help="Rules with registered tools. [env: TRUSTFOLD_RULES]")
@click.option("--embeddings", metavar="MODEL", help="Compare texts by this sentence-embedding model, not by words.")
@_with_target
@_workspace
@_json
def rank(
    *,
    scenario: str,
    tools: Sequence[str],
    rules_file: str | None,
    embeddings: str | None,
    target: Target,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Rank tools for SCENARIO, best first: (similarity - past failures) × quality.

    Ranks the tools of the rules file, those given with --tool, and those with a known quality.
    """
    similarity = None
    if embeddings:
        similarity = embedding_similarity(embeddings)
    rules = Settings.from_env().rules(rules_file).quality
    states = _of_one_workspace(_qualities(target, workspace))
    candidates = {str(state["key"]): "" for state in states}
    candidates |= {name: registered.description for name, registered in rules.tools.items()}
    candidates |= dict(_named(tool) for tool in tools)
    if not candidates:
        raise ConfigError("there is no tool to rank; name some with --tool NAME=PURPOSE, or in the rules file")
    here = _only_workspace(states)
    circuits = [
        state
        for state in target.overview().states
        if state["kind"] == "breaker" and (workspace or here) in {None, state.get("workspace_id")}
    ]
    public = [public_state(state) for state in (*states, *circuits)]
    ranked = rank_tools(
        scenario, [Candidate(*one) for one in candidates.items()], public, datetime.now(UTC), rules, similarity
    )
    if as_json:
        write_json({"source": target.name, "scenario": scenario, "tools": [one._asdict() for one in ranked]})
    else:
        console().print(rank_table(ranked))


@quality.command()
@click.argument("tool")
@click.option("--scenario", metavar="TEXT", help="Task it was used for, as text.")
@click.option("--error", "message", metavar="TEXT", help="What went wrong, as text.")
@click.option(
    "--severity",
    type=click.Choice([str(word) for word in QualitySeverity]),
    default=str(QualitySeverity.MEDIUM),
    show_default=True,
    help="Reduction of the score: 0.01, 0.05 or 0.10.",
)
@_with_target
@_workspace
@_reason
@_json
def mark(
    *,
    tool: str,
    scenario: str | None,
    message: str | None,
    severity: str,
    target: Target,
    workspace: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Mark TOOL as having failed at something."""
    place = workspace or _only_workspace(target.overview().states)
    order = QualityMark(
        **_envelope(tool, place, reason),
        severity=QualitySeverity(severity),
        scenario=scenario,
        error_message=message,
    )
    _tell(target, order, as_json=as_json)


@quality.command()
@click.argument("tool")
@click.option("--score", type=click.FloatRange(0, 1), help="The score to give. [default: the registered one]")
@_with_target
@_workspace
@_reason
@_json
def restore(
    *,
    tool: str,
    score: float | None,
    target: Target,
    workspace: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Restore the score of TOOL, and delete its tags and failed scenarios."""
    states = _qualities(target, workspace)
    here = [state for state in states if state["key"] == tool]
    if not here and score is None:
        near = difflib.get_close_matches(tool, [str(state["key"]) for state in states], n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else "`trustfold quality` lists the known tools"
        raise ConfigError(f"{tool!r} has nothing to restore; {hint}")
    place = workspace or _only_workspace(here or target.overview().states)
    _tell(target, QualityRestore(**_envelope(tool, place, reason), score=score), as_json=as_json)


def _qualities(target: Target, workspace: str | None) -> list[Record]:
    return [
        state
        for state in target.overview().states
        if state["kind"] == "quality" and workspace in {None, state.get("workspace_id")}
    ]


def _of_one_workspace(states: list[Record]) -> list[Record]:
    _only_workspace(states)
    return states


def _only_workspace(states: Sequence[Record]) -> str | None:
    """The only workspace of the states; None if there are no states.

    Raises:
        ConfigError: there are several.
    """
    places = sorted({str(place) for state in states if (place := state.get("workspace_id"))})
    if len(places) > 1:
        raise ConfigError(f"there are several workspaces, {', '.join(places)}; choose with --workspace")
    return places[0] if places else None


def _named(tool: str) -> tuple[str, str]:
    name, _, about = tool.partition("=")
    if not name.strip():
        raise ConfigError(f"{tool!r} names no tool; write NAME=PURPOSE")
    return name.strip(), about.strip()


def _envelope(tool: str, workspace: str | None, reason: str | None) -> dict[str, Any]:
    return {
        "schema_version": "1.0",
        "id": str(uuid4()),
        "time": datetime.now(UTC),
        "tool": tool,
        "workspace_id": workspace,
        "issued_by": operator_name(),
        "reason": reason,
    }


def _tell(target: Target, order: Command, *, as_json: bool) -> None:
    """Send an order and show the tool's quality afterwards."""
    if target.order([order]) is None:
        if as_json:
            write_json({"sent": 1, "states": None})
        else:
            note(f"sent to {target.name}; the workers apply it as they read it, `trustfold quality` shows it")
        return
    tool = order.key.removeprefix("tool:")
    states = [state for state in _qualities(target, order.workspace_id) if state["key"] == tool]
    if as_json:
        write_json({"sent": 1, "states": states})
    elif states:
        console().print(quality_table(states, datetime.now(UTC)))
    else:
        echo(f"✓ {tool} has its registered score")


_GOOD_FROM, _FAIR_FROM = 0.8, 0.5


def quality_table(states: Sequence[Record], now: datetime) -> RenderableType:
    """Table of tools whose score differs from the registered one, or that have tags or failures; worst first."""
    if not states:
        return Text("every tool has its registered score", QUIET)
    several = len({state.get("workspace_id") for state in states}) > 1
    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold")
    if several:
        table.add_column("Workspace", overflow="fold")
    table.add_column("Tool", overflow="fold", min_width=16)
    table.add_column("Score", no_wrap=True, justify="right")
    table.add_column("Failures", no_wrap=True, justify="right")
    table.add_column("Against it", overflow="fold")
    for state in sorted(states, key=lambda one: (one["score"], one["key"])):
        row: list[RenderableType] = [
            Text(str(state["key"])),
            Text(score_words(state), _style(state["score"])),
            str(state.get("failures") or 0),
            Text("\n".join(f"{what}: {words}" for what, words in _against(state, now))),
        ]
        table.add_row(*([Text(str(state.get("workspace_id", "")))] if several else []), *row)
    return table


def models_table(states: Sequence[Record]) -> RenderableType:
    """Table of each model's success with each tool and target, a tool's worst model first."""
    several = len({state.get("workspace_id") for state in states}) > 1
    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold")
    if several:
        table.add_column("Workspace", overflow="fold")
    table.add_column("Tool/Parameters", overflow="fold", min_width=16)
    table.add_column("Model", overflow="fold", min_width=12)
    for name in ("Calls", "Failed", "Success"):
        table.add_column(name, no_wrap=True, justify="right")
    for state in sorted(states, key=lambda one: (one["key"], one["success_rate"] or 0.0)):
        row = [
            Text(str(state["key"])),
            Text(str(state.get("model") or "all")),
            Text(str(state.get("attempts") or 0)),
            Text(f"{state.get('failures') or 0:g}"),
            Text(f"{state['success_rate'] or 0.0:.0%}", _style(state["success_rate"] or 0.0)),
        ]
        table.add_row(*([Text(str(state.get("workspace_id", "")))] if several else []), *row)
    return table


def rank_table(ranked: Sequence[Ranked]) -> RenderableType:
    """Table of the tools for a scenario, best first, with the parts of each rank."""
    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold")
    table.add_column("Tool", overflow="fold", min_width=16)
    for name in ("Rank", "Similar", "Demoted", "Quality"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("Because", overflow="fold")
    for one in ranked:
        reasons = ["" if one.available else "down now", one.tag, one.failed_at and f"failed at: {one.failed_at}"]
        why = "; ".join(filter(None, reasons))
        table.add_row(
            Text(one.tool, "" if one.rank else QUIET),
            Text(f"{one.rank:.2f}", _style(one.rank) if one.rank else QUIET),
            f"{one.similarity:.2f}",
            f"{one.demotion:.2f}" if one.demotion else "-",
            f"{one.quality:.2f}",
            Text(why),
        )
    return table


def score_words(state: Record) -> str:
    """A score and its registered score, as text: `0.75 of 0.90`."""
    return f"{state['score']:.2f} of {state['registered_score']:.2f}"


def tags_in_force(state: Record, now: datetime) -> list[str]:
    """Tags of a tool that have not expired."""
    expires = state.get("tags_expire_at", {})
    lasting = [tag for tag in state.get("tags", ()) if tag not in expires or datetime.fromisoformat(expires[tag]) > now]
    return [tag.removeprefix("not-for-") for tag in lasting]


def _against(state: Record, now: datetime) -> list[tuple[str, str]]:
    tags, failed = tags_in_force(state, now), state.get("failed_scenarios", {})
    words = [("not for", ", ".join(tags)), ("failed at", "; ".join(reversed(list(failed))))]
    if (until := state.get("unavailable_until")) and datetime.fromisoformat(until) > now:
        words.insert(0, ("out of reach until", f"{datetime.fromisoformat(until):%H:%M:%S}"))
    return [(what, text) for what, text in words if text]


def title_of(state: Record, now: datetime) -> tuple[Text, list[tuple[str, str]]]:
    """Title and facts of a quality or model state, for the view of one key."""
    title = Text(f"{state['key']}  ", "bold")
    facts: list[tuple[str, str]] = []
    if state["kind"] == "quality":
        title.append(f"quality {score_words(state)}", _style(state["score"]))
        facts += _against(state, now)
    else:
        rate = state.get("success_rate")
        title.append(f"with {state.get('model') or 'any model'}", QUIET)
        facts.append(("success rate", f"{rate:.0%}" if rate is not None else "-"))
        facts.append(("calls", f"{state.get('attempts') or 0}, {state.get('failures') or 0:g} failed"))
    if state.get("workspace_id"):
        facts.append(("workspace", str(state["workspace_id"])))
    return title, facts


def _style(score: float) -> str:
    return GOOD if score >= _GOOD_FROM else WARN if score >= _FAIR_FROM else BAD


def embedding_similarity(model: str) -> EmbeddingSimilarity:
    """Similarity function of a sentence-transformers model, by its name or path; the first use may download it.

    Raises:
        ConfigError: the extra is not installed, or the model cannot be loaded.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ConfigError(
            "sentence embeddings are an extra: pip install 'trustfold[embeddings]', or leave --embeddings out"
        ) from error
    try:
        loaded = SentenceTransformer(model)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the embedding model {model!r} cannot be loaded: {error}") from error

    def encode(texts: list[str]) -> Sequence[Sequence[float]]:
        vectors: Sequence[Sequence[float]] = loaded.encode(texts)
        return vectors

    return EmbeddingSimilarity(encode)

"""`trustfold quality`: how well tools do what they are for, which to take, and orders that correct it (seed 4)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar, cast
from uuid import uuid4

import click

from ..config import Settings
from ..projections.ranking import Candidate, rank_tools
from ..schemas.commands import Command, QualityMark, QualityRestore
from ..schemas.errors import ConfigError
from ..schemas.public_state import public_state
from ..schemas.vocabulary import QualitySeverity
from .clients.base import Record, Target, target_of, target_options
from .orders import operator_name
from .quality_view import quality_table, rank_table
from .render import console, echo, note, write_json

F = TypeVar("F", bound=Callable[..., None])

_workspace = click.option("--workspace", metavar="ID", help="Workspace of the tool, where there are several.")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_reason = click.option("--reason", metavar="TEXT", help="Why; kept in history.")


def _with_target(command: F) -> F:
    """Give a command the options that say whom to talk to, and hand it that target."""

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
    """Show how well tools do what they are for, where it differs from what they were registered with."""
    if context.invoked_subcommand is not None:
        if store or url or bootstrap or workspace or as_json:
            raise ConfigError(f"give the options after `{context.invoked_subcommand}`")
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
@click.option("--tool", "tools", multiple=True, metavar="NAME=WHAT IT IS FOR", help="A tool to rank; repeatable.")
@click.option("--rules", "rules_file", metavar="FILE", help="Rules with registered tools. [env: TRUSTFOLD_RULES]")
@click.option("--embeddings", metavar="MODEL", help="Compare meanings by this sentence-embedding model, not words.")
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
    """Rank tools for SCENARIO, best first: similarity, less past failures, times quality.

    The tools are those of the rules file, those named with --tool, and those whose quality is known.
    """
    similarity = None
    if embeddings:
        from .embeddings import embedding_similarity

        similarity = embedding_similarity(embeddings)
    rules = Settings.from_env().rules(rules_file).quality
    states = _of_one_workspace(_qualities(target, workspace))
    candidates = {str(state["key"]): "" for state in states}
    candidates |= {name: registered.description for name, registered in rules.tools.items()}
    candidates |= dict(_named(tool) for tool in tools)
    if not candidates:
        raise ConfigError("there is no tool to rank; name some with --tool NAME=WHAT, or in the rules file")
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
@click.option("--scenario", metavar="TEXT", help="What it was used for, in words.")
@click.option("--error", "message", metavar="TEXT", help="What went wrong, in words.")
@click.option(
    "--severity",
    type=click.Choice([str(word) for word in QualitySeverity]),
    default=str(QualitySeverity.MEDIUM),
    show_default=True,
    help="How much it costs: 0.01, 0.05 or 0.10.",
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
    """Give TOOL its score back, without tags and failed scenarios."""
    states = _qualities(target, workspace)
    here = [state for state in states if state["key"] == tool]
    if not here and score is None:
        near = difflib.get_close_matches(tool, [str(state["key"]) for state in states], n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else "`trustfold quality` lists what is known"
        raise ConfigError(f"nothing is held against {tool!r}; {hint}")
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
    """The workspace that all states are of; None where there is none.

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
        raise ConfigError(f"{tool!r} names no tool; write NAME=WHAT IT IS FOR")
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
    """Send an order and show how the tool stands afterwards."""
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
        echo(f"✓ {tool} stands at the score it was registered with")

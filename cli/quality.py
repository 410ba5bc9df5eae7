"""`trustfold quality`: quality scores of tools, their ranking for a scenario, and orders that correct them.

See docs/design/semantics.md#tool-quality.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from ..config import EnvironmentSettings
from ..errors import ConfigError, add_extra
from ..projections.ranking import EmbeddingSimilarity, RankCandidate, ToolRank, rank_tools
from ..schemas.commands import Command, QualityMark, QualityRestore
from ..schemas.public_state import BreakerUpdated, ModelUpdated, PublicState, QualityUpdated
from ..schemas.vocabulary import QualitySeverity
from .clients.client import DeploymentClient, StateRecord
from .clients.selection import target_of
from .operator import envelope
from .options import json_option, reason_option, target_options, with_target, workspace_option
from .render import console, echo, note, write_json
from .terminal import BAD, GOOD, QUIET, WARN, lined_table, note_unreadable

_workspace = workspace_option("Workspace of the tool, if there are several.")


@click.group(invoke_without_command=True)
@target_options
@_workspace
@json_option()
@click.pass_context
def quality(context: click.Context, /, *, workspace: str | None, as_json: bool, **where: str | None) -> None:
    """Show tools whose quality differs from their registered score."""
    if context.invoked_subcommand is not None:
        if any(where.values()) or workspace or as_json:
            raise ConfigError(f"options go after `{context.invoked_subcommand}`")
        return
    target = target_of(**where, settings=None)
    _show(_qualities(target, workspace), as_json=as_json, source=target.name, time=_now())


@quality.command()
@click.argument("scenario")
@click.option("--tool", "tools", multiple=True, metavar="NAME=PURPOSE", help="A tool to rank; repeatable.")
@click.option("--rules", "rules_file", metavar="FILE", help="Rules with registered tools. [env: TRUSTFOLD_RULES]")
@click.option("--embeddings", metavar="MODEL", help="Compare texts by this sentence-embedding model, not by words.")
@with_target
@_workspace
@json_option()
def rank(
    *,
    scenario: str,
    tools: Sequence[str],
    rules_file: str | None,
    embeddings: str | None,
    target: DeploymentClient,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Rank tools for SCENARIO, best first: (similarity - past failures) * quality.

    Ranks the tools of the rules file, those given with --tool, and those with a known quality.
    """
    similarity = embedding_similarity(embeddings) if embeddings else None
    rules = EnvironmentSettings.from_env().rules(rules_file).quality
    states = target.overview().states
    qualities = [one for one in states if isinstance(one, QualityUpdated) and workspace in {None, one.workspace_id}]
    here = workspace or _only_workspace(qualities)
    candidates = {one.key: "" for one in qualities}
    candidates |= {name: registered.description for name, registered in rules.tools.items()}
    candidates |= dict(_named(tool) for tool in tools)
    if not candidates:
        raise ConfigError("there is no tool to rank; name some with --tool NAME=PURPOSE, or in the rules file")
    circuits = [one for one in states if isinstance(one, BreakerUpdated) and here in {None, one.workspace_id}]
    tried = [RankCandidate(*one) for one in candidates.items()]
    ranked = rank_tools(scenario, tried, [*qualities, *circuits], datetime.now(UTC), rules, similarity)
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
@with_target
@_workspace
@reason_option
@json_option()
def mark(
    *,
    tool: str,
    scenario: str | None,
    message: str | None,
    severity: str,
    target: DeploymentClient,
    workspace: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Mark TOOL as having failed at something."""
    place = workspace or _only_workspace(target.overview().states)
    fields = _fields(tool, place, reason)
    order = QualityMark(**fields, severity=QualitySeverity(severity), scenario=scenario, error_message=message)
    _send(target, order, as_json=as_json)


@quality.command()
@click.argument("tool")
@click.option("--score", type=click.FloatRange(0, 1), help="The score to give. [default: the registered one]")
@with_target
@_workspace
@reason_option
@json_option()
def restore(
    *,
    tool: str,
    score: float | None,
    target: DeploymentClient,
    workspace: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Restore the score of TOOL, and delete its tags and failed scenarios."""
    known = _qualities(target, workspace)
    here = [one.state for one in known if one.state.key == tool]
    if not here and score is None:
        near = difflib.get_close_matches(tool, [one.state.key for one in known], n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else "`trustfold quality` lists the known tools"
        raise ConfigError(f"{tool!r} has nothing to restore; {hint}")
    place = workspace or _only_workspace(here or target.overview().states)
    _send(target, QualityRestore(**_fields(tool, place, reason), score=score), as_json=as_json)


def _qualities(target: DeploymentClient, workspace: str | None) -> list[StateRecord[QualityUpdated]]:
    overview = target.overview()
    note_unreadable(one for one in overview.records if one.record.get("kind") == "quality")
    found = overview.of_kind(QualityUpdated)
    return [one for one in found if workspace in {None, one.state.workspace_id}]


def _only_workspace(states: Sequence[PublicState]) -> str | None:
    """The only workspace of the states; None if there are no states."""
    places = sorted({state.workspace_id for state in states if state.workspace_id})
    if len(places) > 1:
        raise ConfigError(f"there are several workspaces, {', '.join(places)}; choose with --workspace")
    return places[0] if places else None


def _named(tool: str) -> tuple[str, str]:
    name, _, about = tool.partition("=")
    if not name.strip():
        raise ConfigError(f"{tool!r} names no tool; write NAME=PURPOSE")
    return name.strip(), about.strip()


def _fields(tool: str, workspace: str | None, reason: str | None) -> dict[str, Any]:
    return envelope(reason) | {"tool": tool, "workspace_id": workspace}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _send(target: DeploymentClient, order: Command, *, as_json: bool) -> None:
    """Send an order and show the tool's quality afterwards."""
    if target.order([order]) is None:
        if as_json:
            write_json({"sent": 1, "states": None})
        else:
            note(f"sent to {target.name}; the workers apply it as they read it, `trustfold quality` shows it")
        return
    tool = order.key.removeprefix("tool:")
    found = [one for one in _qualities(target, order.workspace_id) if one.state.key == tool]
    if found or as_json:
        _show(found, as_json=as_json, sent=1)
    else:
        echo(f"✓ {tool} has its registered score")


def _show(found: Sequence[StateRecord[QualityUpdated]], *, as_json: bool, **fields: Any) -> None:
    """Print a table of qualities, or their records in a JSON document with other fields before them."""
    if as_json:
        write_json(fields | {"states": [one.record for one in found]})
    else:
        console().print(quality_table([one.state for one in found], datetime.now(UTC)))


_GOOD_FROM, _FAIR_FROM = 0.8, 0.5


def quality_table(states: Sequence[QualityUpdated], now: datetime) -> RenderableType:
    """Table of tools whose score differs from the registered one, or that have tags or failures; worst first."""
    if not states:
        return Text("every tool has its registered score", QUIET)
    several = _several_workspaces(states)
    table = lined_table(*several)
    table.add_column("Tool", overflow="fold", min_width=16)
    table.add_column("Score", no_wrap=True, justify="right")
    table.add_column("Failures", no_wrap=True, justify="right")
    table.add_column("Against it", overflow="fold")
    for state in sorted(states, key=lambda one: (_score(one), one.key)):
        table.add_row(
            *([Text(state.workspace_id or "")] if several else []),
            Text(state.key),
            Text(score_words(state), _style(_score(state))),
            f"{state.failures or 0:g}",
            Text("\n".join(f"{what}: {words}" for what, words in _against(state, now))),
        )
    return table


def models_table(states: Sequence[ModelUpdated]) -> RenderableType:
    """Table of each model's success with each tool and target, a tool's worst model first."""
    several = _several_workspaces(states)
    table = lined_table(*several)
    table.add_column("Tool/Parameters", overflow="fold", min_width=16)
    table.add_column("Model", overflow="fold", min_width=12)
    for name in ("Calls", "Failed", "Success"):
        table.add_column(name, no_wrap=True, justify="right")
    for state in sorted(states, key=lambda one: (one.key, one.success_rate or 0.0)):
        rate = state.success_rate or 0.0
        table.add_row(
            *([Text(state.workspace_id or "")] if several else []),
            Text(state.key),
            Text(state.model or "all"),
            Text(str(state.attempts or 0)),
            Text(f"{state.failures or 0:g}"),
            Text(f"{rate:.0%}", _style(rate)),
        )
    return table


def _several_workspaces(states: Sequence[PublicState]) -> list[str]:
    """Name of a column for the workspace if the states are of several; else nothing."""
    return ["Workspace"] if len({state.workspace_id for state in states}) > 1 else []


def rank_table(ranked: Sequence[ToolRank]) -> RenderableType:
    """Table of the tools for a scenario, best first, with the parts of each rank."""
    table = lined_table()
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


def _score(state: QualityUpdated) -> float:
    return state.score or 0.0


def score_words(state: QualityUpdated) -> str:
    """A score and its registered score, as text: `0.75 of 0.90`."""
    return f"{_score(state):.2f} of {state.registered_score or 0.0:.2f}"


def tags_in_force(state: QualityUpdated, now: datetime) -> list[str]:
    """Tags of a tool that have not expired."""
    expires = state.tags_expire_at
    lasting = [tag for tag in state.tags if tag not in expires or datetime.fromisoformat(expires[tag]) > now]
    return [tag.removeprefix("not-for-") for tag in lasting]


def _against(state: QualityUpdated, now: datetime) -> list[tuple[str, str]]:
    """Reasons against choosing a tool, as labels and texts: tags, failed scenarios, until when it is unavailable."""
    tags, failed = tags_in_force(state, now), state.failed_scenarios
    words = [("not for", ", ".join(tags)), ("failed at", "; ".join(reversed(list(failed))))]
    if (until := state.unavailable_until) and datetime.fromisoformat(until) > now:
        words.insert(0, ("out of reach until", f"{datetime.fromisoformat(until):%H:%M:%S}"))
    return [(what, text) for what, text in words if text]


def title_of(state: QualityUpdated | ModelUpdated, now: datetime) -> tuple[Text, list[tuple[str, str]]]:
    """Title and facts of a quality or model state, for the view of one key."""
    title = Text(f"{state.key}  ", "bold")
    facts: list[tuple[str, str]] = []
    if isinstance(state, QualityUpdated):
        title.append(f"quality {score_words(state)}", _style(_score(state)))
        facts += _against(state, now)
    else:
        rate = state.success_rate
        title.append(f"with {state.model or 'any model'}", QUIET)
        facts.append(("success rate", f"{rate:.0%}" if rate is not None else "-"))
        facts.append(("calls", f"{state.attempts or 0}, {state.failures or 0:g} failed"))
    if state.workspace_id:
        facts.append(("workspace", state.workspace_id))
    return title, facts


def _style(score: float) -> str:
    return GOOD if score >= _GOOD_FROM else WARN if score >= _FAIR_FROM else BAD


def embedding_similarity(model: str) -> EmbeddingSimilarity:
    """Similarity function of a sentence-transformers model, by its name or path; the first use may download it."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ConfigError(f"leave --embeddings out, or {add_extra('embeddings')}") from error
    try:
        loaded = SentenceTransformer(model)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the embedding model {model!r} cannot be loaded: {error}") from error

    def encode(texts: list[str]) -> Sequence[Sequence[float]]:
        vectors: Sequence[Sequence[float]] = loaded.encode(texts)
        return vectors

    return EmbeddingSimilarity(encode)

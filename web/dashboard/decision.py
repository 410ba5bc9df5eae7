"""Page of one decision: rule and threshold, events that counted, related decisions, and how its state ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...history.sessions.evidence import DecisionEvidence, behind, wanted_of
from ...history.sessions.timeline import millis
from ...schemas.decision_text import DecisionLine, line_of_record
from .now import key_url
from .render import PageContext, segment
from .session import WORDS, session_url
from .source import DashboardSource, PlacedRecord, Record

LOOKED_BACK = 2000  # Number of a session's events read to find the starts of the calls that a decision names
COUNTED_AGAIN = 10_000  # Number of latest events of all sessions read to count events that a decision does not name
AROUND_MS = 7 * 86_400_000  # Time before and after a change of a circuit in which related changes are shown
RELATED = 2000  # Number of decisions read to find related ones of the same key


class RelatedDecision(NamedTuple):
    """Related decision, before or after the shown one."""

    url: str
    time: str
    line: DecisionLine


async def read_behind(source: DashboardSource, decision: PlacedRecord) -> DecisionEvidence:
    """Evidence of a decision, as far as stored."""
    record = decision.record
    session = str(record.get("session_id") or "")
    basis = await _basis(source, record)
    named = await source.events_of((basis or record).get("caused_by") or (), session=session)
    found = {str(one.record["id"]): one for one in named}
    last: dict[str, int] = {}
    for one in named:
        of = str(one.record.get("session_id") or "")
        last[of] = max(last.get(of, 0), one.offset)
    for name, offset in last.items():
        before = offset + 1 if offset else None
        _add(found, await source.events(session=name, before=before, limit=LOOKED_BACK))
    if wanted_of(record) is not None and named:
        _add(found, await source.events_up_to(max(one.offset for one in named), limit=COUNTED_AGAIN))
    events = sorted(found.values(), key=lambda one: (one.offset or 1 << 62, one.record["time"]))
    related = [one.record for one in await _related(source, decision)]
    if not any(one["id"] == record["id"] for one in related):  # too old for the source: all related ones are newer
        related.insert(0, record)
    return await run_in_threadpool(
        behind,
        record,
        [one.record for one in events],
        related,
        basis=basis,
        rules=source.rules,
    )


async def _basis(source: DashboardSource, record: Record) -> Record | None:
    """Pattern of a nudge or of what became of one; None for other decisions."""
    if record["type"] in {"nudge.judged", "nudge.withdrawn"}:
        nudge = await source.decision(str(record["nudge_id"]))
        record = nudge.record if nudge is not None else {}
    pattern = await source.decision(str(record["pattern_id"])) if record.get("pattern_id") else None
    return pattern.record if pattern is not None else None


async def _related(source: DashboardSource, decision: PlacedRecord) -> Sequence[PlacedRecord]:
    record = decision.record
    if record["type"] == "breaker.changed":
        at = millis(record["time"])
        return await source.circuits(at - AROUND_MS, at + AROUND_MS)
    if record["type"] in {"trust.changed", "trust.recovery_pending", "trust.danger_noted"}:
        before = decision.offset + RELATED // 2 if decision.offset else None
        return await source.decisions(before=before, limit=RELATED)
    return await source.decisions(session=str(record.get("session_id") or ""), limit=RELATED)


def _add(found: dict[str, PlacedRecord], more: Iterable[PlacedRecord]) -> None:
    for one in more:
        found.setdefault(str(one.record["id"]), one)


def neighbours_of(decisions: Sequence[Record]) -> list[RelatedDecision]:
    """Links to decisions."""
    return [
        RelatedDecision(f"/decisions/{segment(str(one['id']))}", str(one["time"]), line_of_record(one))
        for one in decisions
    ]


def decision_routes(site: PageContext) -> Sequence[Route]:
    """Route of this page."""

    async def decision(request: Request) -> Response:
        """Page of a decision with its evidence."""
        decision_id = request.path_params["id"]
        found = await site.source.decision(decision_id)
        if found is None:
            return site.render(
                request, "message.html", status=404, title=f"Decision {decision_id}", back="/",
                text="This decision is not kept: it was never made here, or it is older than what is kept.",
            )  # fmt: skip
        made = await read_behind(site.source, found)
        key = str(found.record.get("key") or found.record.get("breaker_key") or "")
        return site.render(
            request,
            "decision.html",
            behind=made,
            decision=found.record,
            line=line_of_record(found.record),
            key=key,
            key_url=key_url(key, str(found.record.get("workspace_id") or "")) if key else "",
            earlier=neighbours_of(made.earlier),
            later=neighbours_of(made.later),
            url=session_url,
            words=WORDS,
            record=orjson.dumps(found.record, option=orjson.OPT_INDENT_2).decode(),
        )

    return [Route("/decisions/{id:path}", decision)]

"""Handler of the order form: sends the same commands as the command line.

Each form has a unique number from which its command ids are derived, so sending it twice has no further effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...errors import TrustfoldError
from ...projections.calls.keys import has_scope
from ...projections.incidents import SEVERITIES, IncidentRecord
from ...projections.orders import held, is_affected, trust_subjects
from ...schemas.commands import (
    BreakerClose,
    BreakerForceOpen,
    Command,
    IncidentAcknowledge,
    QualityRestore,
    ToolRestore,
    TrustApprove,
    TrustRecover,
    TrustReset,
)
from ...schemas.decision_text import DecisionLine, TextTone, line_of_record
from ...schemas.events import Event, FeedbackFalseAlarm
from ...schemas.fields import MAX_NAME
from ...schemas.public_state import BreakerUpdated, PublicState
from ...streams.embedded.sign_in import RequestRole
from .now import row_id
from .order_labels import ORDERS
from .render import PageContext
from .sign_in import own_path, read_form

NO_ORDERS = (
    "Orders take the operator's token. Sign in with it, or give the order at the command line: `trustfold status` "
    "shows the key, `trustfold reset KEY` and `trustfold recover KEY` give trust back."
)
NO_OPERATOR = (
    "This server takes no orders: start it with TRUSTFOLD_OPERATOR_TOKEN set to a secret and sign in with that, or "
    "with --allow-local-orders where every program of this machine is trusted."
)


class FormOrder(NamedTuple):
    """Order from a form."""

    order: str  # a name of `ORDERS`
    key: str  # the key, as its state says it; of a false alarm, the session
    workspace: str  # where it holds; empty: the default one
    number: str  # of the form, from which ids follow
    about: str = ""  # id of the output that was a false alarm; else empty
    reason: str = ""  # why, in words
    row: str = ""  # id of the incident's row on the page


def records_for(
    given: FormOrder, states: Iterable[PublicState], at: datetime, incidents: Iterable[IncidentRecord] = ()
) -> list[Command | Event]:
    """Commands and events that carry out an order."""
    count = iter(range(1_000_000))
    reason = given.reason or None
    workspace = given.workspace or None

    def envelope(key: str, where: str | None = workspace) -> dict[str, Any]:
        own = {
            "schema_version": "1.0",
            "id": f"page-{given.number}-{given.order}-{next(count)}",
            "time": at,
            "reason": reason,
        }
        return own | {"key": key, "workspace_id": where, "issued_by": "dashboard"}

    scope = given.key if has_scope(given.key) else f"tool:{given.key}"
    if given.order == "false-alarm":
        return [
            FeedbackFalseAlarm(
                schema_version="1.0", id=f"page-{given.number}", time=at, session_id=given.key, output_id=given.about,
                reason=reason,
            )
        ]  # fmt: skip
    if given.order in {"acknowledge", "withdraw"}:
        meant = [one for one in incidents if row_id(one.key) == given.row]
        if not meant:
            raise TrustfoldError(f"{given.key} needs nobody any more")
        one, withdraw = meant[0], given.order == "withdraw"
        seen: dict[str, Any] = {"severity": SEVERITIES[one.severity - 1], "size": one.size, "withdraw": withdraw}
        return [IncidentAcknowledge(**envelope(one.name), **seen)]
    if given.order in _OF_CIRCUITS:
        return [_OF_CIRCUITS[given.order](**envelope(scope))]
    if given.order == "restore":
        return [ToolRestore(**envelope(given.key))]
    if given.order == "quality":
        return [
            QualityRestore(**{name: value for name, value in envelope("").items() if name != "key"}, tool=given.key)
        ]
    about = [one for one in held(states, workspace) if is_affected(one.key, given.key)]
    if not about:
        raise TrustfoldError(f"nothing is held against {given.key} any more")
    subjects = trust_subjects(about, given.key)
    commands: list[Command | Event] = [_OF_TRUST[given.order](**envelope(name, where)) for where, name in subjects]
    if given.order == "reset":
        commands += [
            BreakerClose(**envelope(one.key, one.workspace_id)) for one in about if isinstance(one, BreakerUpdated)
        ]
    return commands


_OF_CIRCUITS: dict[str, Callable[..., Command]] = {"close": BreakerClose, "open": BreakerForceOpen}
_OF_TRUST: dict[str, Callable[..., Command]] = {"approve": TrustApprove, "recover": TrustRecover, "reset": TrustReset}


def order_routes(site: PageContext) -> Sequence[Route]:
    """Path of the form."""

    async def give(request: Request) -> Response:
        """Send an order and show its result."""
        try:
            fields = await read_form(request, site.sign_ins)
        except HTTPException as refused:
            return _said(request, refused.status_code, f"Not done: {refused.detail}")
        if request.state.role is not RequestRole.OPERATOR:
            return _said(request, 403, NO_ORDERS if site.sign_ins.has_operator else NO_OPERATOR)
        given = FormOrder(
            fields.get("order", ""),
            fields.get("key", "")[:MAX_KEY],
            fields.get("workspace", "")[:MAX_NAME],
            fields.get("number", "")[:64],
            fields.get("about", "")[:MAX_NAME],
            fields.get("reason", "")[:1000],
            fields.get("row", ""),
        )
        if given.order not in ORDERS or not given.key or not given.number.isalnum():
            return _said(request, 400, "This order cannot be read; reload the page and try again.")
        board = site.source.board
        try:
            incidents = board.incidents(round(site.clock().timestamp() * 1000))
            records = records_for(given, board.states.values(), datetime.now(UTC), incidents)
            decisions = await site.source.send(records)
        except TrustfoldError as fault:
            return _said(request, 409, f"Not done: {fault}")
        return _said(request, 200, f"{ORDERS[given.order].label}, {given.key}:", _lines(given, decisions))

    def _said(request: Request, status: int, text: str, lines: Sequence[DecisionLine] = ()) -> Response:
        template = "said.html" if "hx-request" in request.headers else "ordered.html"
        # htmx swaps nothing into the page for 4xx, and a person must read why.
        shown = 200 if "hx-request" in request.headers else status
        came_from = urlsplit(request.headers.get("referer", "/"))
        back = own_path(f"{came_from.path}?{came_from.query}" if came_from.query else came_from.path)
        return site.render(request, template, status=shown, text=text, lines=lines, refused=status != 200, back=back)

    return [Route("/orders", give, methods=["POST"])]


def _lines(given: FormOrder, decisions: Sequence[Mapping[str, Any]] | None) -> list[DecisionLine]:
    """Result of an order, as lines of text."""
    if decisions is None:
        return [
            DecisionLine("→", "sent", "the workers apply it as they read it; this page shows it then", TextTone.QUIET)
        ]
    moved = [line_of_record(one) for one in decisions]
    return moved or [DecisionLine("·", ORDERS[given.order].unmoved, "", TextTone.QUIET)]


MAX_KEY = 4096

"""Webhook of incidents: tells an address when one opens, gets worse, or is over (docs/operating.md, Webhook).

The requests are those of Standard Webhooks 1.0: an id that is the same in every attempt, a time, and an HMAC-SHA256
signature. A ledger compares the incidents of now with what the address has accepted, so nothing is queued: an address
that was away gets the latest state of each incident once it answers, and a restart tells open incidents again under
the same ids.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import orjson
import urllib3

from ..config import EnvironmentSettings, WebhookFormat
from ..errors import ConfigError
from ..projections.incidents import NEEDED, SEVERITIES, IncidentRecord
from ..schemas.codec import rfc3339
from ..schemas.decision_text import counted
from ..schemas.vocabulary import PatternSeverity
from .dashboard.current_state import StateBoard

LOOK_S = 2.0  # Seconds between two looks at the incidents

# Milliseconds after which an incident that is gone counts as over; a circuit that flaps opens no second one
QUIET_MS = 60_000

TIMEOUT_S = 5.0  # Seconds that an attempt may take

# Seconds to the next attempt after a failed one; doubled each time up to the second value
FIRST_WAIT_S, MAX_WAIT_S = 2.0, 300.0

_LOG = logging.getLogger(__name__)


class IncidentNotice(NamedTuple):
    """What the address is told of one incident.

    Attributes:
        change: `opened`, `worsened` or `resolved`.
        incident: as it is now; when resolved, as it was last.
        at_ms: time of the notice, milliseconds since 1970.
    """

    change: str
    incident: IncidentRecord
    at_ms: int

    @property
    def id(self) -> str:
        """Id of the notice, equal in every attempt and after a restart, so that receivers can drop a second one."""
        one = self.incident
        text = f"{one.key}\x1f{one.since_ms}\x1f{self.change}\x1f{one.severity}\x1f{one.state == 'waiting'}"
        return f"msg_{blake2b(text.encode(), digest_size=12).hexdigest()}"


class ToldIncident(NamedTuple):
    """What the address has accepted of an incident.

    Attributes:
        waiting: it was told that the incident waits for a person.
        last: the incident when it was seen last.
        seen_ms: when that was.
    """

    severity: int
    waiting: bool
    last: IncidentRecord
    seen_ms: int


class NoticeLedger:
    """Compares incidents with what was told of them.

    An incident is told when it needs somebody (`incidents.NEEDED`) and is as severe as `least` or waits for a person;
    again when it gets more severe or begins to wait; and when it has been gone for `QUIET_MS`. A fall in severity is
    not told, and of an acknowledged incident not that it is open.
    """

    def __init__(self, least: PatternSeverity = PatternSeverity.MODERATE) -> None:
        """Start with nothing told."""
        self._least = SEVERITIES.index(least) + 1
        self._told: dict[str, ToldIncident] = {}

    def due(self, incidents: Sequence[IncidentRecord], now_ms: int) -> list[IncidentNotice]:
        """Notices that the address has not accepted yet."""
        found = []
        for one in incidents:
            told = self._told.get(one.key)
            if told is None:
                if one.acknowledged is not None:  # somebody deals with it: only that it gets worse, or its end, is news
                    self.accepted(IncidentNotice("opened", one, now_ms))
                elif one.state in NEEDED and (one.severity >= self._least or one.state == "waiting"):
                    found.append(IncidentNotice("opened", one, now_ms))
                continue
            self._told[one.key] = told._replace(last=one, seen_ms=now_ms)
            if one.severity > told.severity or (one.state == "waiting" and not told.waiting):
                found.append(IncidentNotice("worsened", one, now_ms))
        gone = self._told.keys() - {one.key for one in incidents}
        over = [told for key, told in self._told.items() if key in gone and now_ms - told.seen_ms >= QUIET_MS]
        return found + [IncidentNotice("resolved", told.last, now_ms) for told in over]

    def accepted(self, notice: IncidentNotice) -> None:
        """Note that the address has accepted a notice."""
        one = notice.incident
        if notice.change == "resolved":
            del self._told[one.key]
            return
        told = self._told.get(one.key)
        severity = max(one.severity, told.severity if told else 0)
        waiting = one.state == "waiting" or (told is not None and told.waiting)
        self._told[one.key] = ToldIncident(severity, waiting, one, notice.at_ms)


class WebhookTarget(NamedTuple):
    """Where notices go and in which form.

    Attributes:
        url: address of the receiver; a secret, since chat services put their token into it.
        secret: key of the signature; empty: requests are not signed.
        form: body of the requests: `json`, or `slack` for the incoming webhooks of Slack, Mattermost and the like.
        least: severity from which on incidents are told.
        page: URL of the dashboard, for the links of the notices; empty: there are none.
    """

    url: str
    secret: bytes = b""
    form: WebhookFormat = WebhookFormat.JSON
    least: PatternSeverity = PatternSeverity.MODERATE
    page: str = ""

    @property
    def place(self) -> str:
        """Scheme and host of the address, which may be shown."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def body(self, notice: IncidentNotice) -> bytes:
        """Body of a request."""
        if self.form is WebhookFormat.SLACK:
            return orjson.dumps({"text": self._text(notice)})
        data = notice.incident.record() | ({"url": self._link(notice.incident)} if self.page else {})
        return orjson.dumps({"type": f"incident.{notice.change}", "timestamp": rfc3339(notice.at_ms), "data": data})

    def headers(self, notice: IncidentNotice, body: bytes, now_s: int) -> dict[str, str]:
        """Headers of a request: the id, the time of the attempt, and the signature of both and the body."""
        found = {"content-type": "application/json", "user-agent": "trustfold"}
        found |= {"webhook-id": notice.id, "webhook-timestamp": str(now_s)}
        if self.secret:
            signed = hmac.digest(self.secret, f"{notice.id}.{now_s}.".encode() + body, "sha256")
            found["webhook-signature"] = f"v1,{b64encode(signed).decode()}"
        return found

    def _link(self, one: IncidentRecord) -> str:
        path = "?q=" if one.session is None else "sessions/"
        return f"{self.page.rstrip('/')}/{path}{quote(one.subject, safe='')}"

    def _text(self, notice: IncidentNotice) -> str:
        """Message for a chat, in the markup of Slack; what came from outside cannot be markup."""
        one = notice.incident
        if notice.change == "resolved":
            return f":white_check_mark: *{_escaped(one.subject)}* ({_escaped(one.workspace)}): over"
        mark = (":large_blue_circle:", ":large_orange_circle:", ":red_circle:")[one.severity - 1]
        lines = [f"{mark} *{_escaped(one.subject)}* ({_escaped(one.workspace)}): {one.state}. {_escaped(one.cause)}"]
        lines += [f"since {rfc3339(one.since_ms)}, {counted(one.hit, 'session')} hit"] if one.hit else []
        lines += [f"waits: {_escaped(what)}" for what in one.waiting]
        lines += [f"`{_escaped(order)}`" for order in one.orders]
        lines += [f"<{self._link(one)}|Look at it>"] if self.page else []
        return "\n".join(lines)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")


def webhook_of(settings: EnvironmentSettings, page: str) -> WebhookTarget | None:
    """Target that the environment names; None without one. `page`: URL of the dashboard, if none is set.

    Raises:
        ConfigError: the address is no HTTP URL, or the secret cannot be read.
    """
    if not settings.webhook:
        return None
    parts = urlsplit(settings.webhook)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError("TRUSTFOLD_WEBHOOK is no URL; it must begin with https:// or http:// and name a host")
    text = settings.webhook_secret
    try:
        secret = b64decode(text[6:], validate=True) if text.startswith("whsec_") else text.encode()
    except ValueError:
        raise ConfigError("TRUSTFOLD_WEBHOOK_SECRET begins with whsec_, but base64 does not follow") from None
    form, least = settings.webhook_format, settings.webhook_severity
    return WebhookTarget(settings.webhook, secret, form, least, settings.url or page)


class IncidentWebhook:
    """Sends the notices of a board's incidents to one address.

    Attributes:
        fault: why the latest attempt failed; empty if it did not.
        accepted: notices that the address has accepted.
    """

    def __init__(
        self,
        board: StateBoard,
        target: WebhookTarget,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Send nothing yet."""
        self.fault = ""
        self.accepted = 0
        self._board = board
        self._target = target
        self._clock_ms = clock_ms
        self._ledger = NoticeLedger(target.least)
        self._pool = urllib3.PoolManager(1, timeout=urllib3.Timeout(total=TIMEOUT_S), retries=False)

    async def run(self) -> None:
        """Send notices until cancelled."""
        wait_s = 0.0
        while True:
            failed = not await self.send_due()
            wait_s = min(max(2 * wait_s, FIRST_WAIT_S), MAX_WAIT_S) if failed else 0.0
            await asyncio.sleep(wait_s or LOOK_S)

    async def send_due(self) -> bool:
        """Send what is due, one after the other; False after the first that the address did not accept."""
        now_ms = self._clock_ms()
        for notice in self._ledger.due(self._board.incidents(now_ms), now_ms):
            fault = await asyncio.to_thread(self._post, notice)
            if fault:
                if not self.fault:
                    _LOG.warning("webhook: %s: %s; it is tried again", self._target.place, fault)
                self.fault = fault
                return False
            self._ledger.accepted(notice)
            self.accepted += 1
        if self.fault:
            _LOG.warning("webhook: %s answers again", self._target.place)
            self.fault = ""
        return True

    def _post(self, notice: IncidentNotice) -> str:
        """Make one attempt; returns why it failed, without the address, which may hold a secret."""
        body = self._target.body(notice)
        headers = self._target.headers(notice, body, self._clock_ms() // 1000)
        try:
            answer = self._pool.request("POST", self._target.url, body=body, headers=headers, redirect=False)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            return type(error).__name__
        return "" if 200 <= answer.status < 300 else f"HTTP {answer.status}"

"""What-if page: what other thresholds would have decided, by `trustfold whatif` in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import orjson
from markupsafe import Markup
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...errors import TrustfoldError
from ...history.page import table
from ...rules.behaviour import SeverityLadder
from ...rules.rules import RuleSet
from ...rules.trust import EscalationRule
from .history import linked
from .history_answers import QuestionUnanswered
from .history_filters import NAMES, PRESETS, PageFilters
from .render import PageContext, positive

KEPT = 8  # Results kept, the latest
WAIT_S = 2.0  # Longest wait of a page for a result; then it says that it is computed, and asks again
LIMIT_S = 300.0  # Seconds after which a computation is ended

ROWS = 20

# Parameter, words before and words after each number
FIELDS = (
    ("ask", "A person is asked after", "failures of a key"),
    ("open", "A circuit opens after", "failures in a row"),
    ("repeat", "A hint comes at", "same calls with the same result"),
)


class WhatifTrial(NamedTuple):
    """Computation of a comparison: its task, and when it began on the monotonic clock."""

    task: asyncio.Task[dict[str, Any]]
    began: float


class TrialRunner:
    """Comparisons that were asked for, one computed at a time."""

    def __init__(self) -> None:
        """Start with none."""
        self._kept: OrderedDict[tuple[str, ...], WhatifTrial] = OrderedDict()
        self._one = asyncio.Semaphore(1)

    def of(self, rules: RuleSet, options: Sequence[str]) -> WhatifTrial:
        """The comparison of the recorded rules with others, of what options of `trustfold whatif` choose."""
        body = msgspec.json.encode(rules).decode()
        known = self._kept.pop((body, *options), None)
        if known is None or (known.task.done() and known.task.exception() is not None):
            known = WhatifTrial(asyncio.create_task(self._compute(body, options)), time.monotonic())
        self._kept[body, *options] = known
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)[1].task.cancel()
        return known

    async def _compute(self, rules: str, options: Sequence[str]) -> dict[str, Any]:
        with TemporaryDirectory(prefix="trustfold-whatif-") as folder:
            tried = Path(folder) / "rules.json"
            tried.write_text(rules)
            command = (sys.executable, "-m", "trustfold", "whatif", "--json", "--rules", str(tried), *options)
            async with self._one:
                process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
                try:
                    with suppress(AttributeError, OSError):  # agents wait for this machine, the reader of a page can
                        os.setpriority(os.PRIO_PROCESS, process.pid, 19)
                    async with asyncio.timeout(LIMIT_S):
                        out, err = await process.communicate()
                except TimeoutError:
                    raise QuestionUnanswered(f"it took more than {LIMIT_S:g} s: choose a shorter time") from None
                finally:
                    if process.returncode is None:
                        process.kill()
        if process.returncode:
            raise TrustfoldError((err.decode(errors="replace").strip().splitlines() or ["it failed"])[-1])
        found: dict[str, Any] = orjson.loads(out)
        return found


def tried_rules(rules: RuleSet, numbers: Mapping[str, int]) -> RuleSet:
    """Rules with the numbers of `FIELDS` that are given."""
    if ask := numbers.get("ask"):
        rule = replace(rules.trust.default_rule, count_threshold=ask)
        rules = replace(rules, trust=replace(rules.trust, default_rule=rule))
    if opened := numbers.get("open"):
        policy = replace(rules.breakers.tool, consecutive_failures=opened)
        rules = replace(rules, breakers=replace(rules.breakers, tool=policy))
    if repeat := numbers.get("repeat"):
        known = rules.behaviour.repetitive_calls
        steps = [step and repeat + step - known.minor for step in (known.moderate, known.severe)]
        ladder = SeverityLadder(minor=repeat, moderate=steps[0], severe=steps[1], enabled=known.enabled)
        rules = replace(rules, behaviour=replace(rules.behaviour, repetitive_calls=ladder))
    return rules


def in_force(rules: RuleSet) -> dict[str, int | float | None]:
    """Numbers of `FIELDS` in rules."""
    ask = rules.trust.default_rule.count_threshold
    return {
        "ask": EscalationRule().count_threshold if isinstance(ask, msgspec.UnsetType) else ask,
        "open": rules.breakers.tool.consecutive_failures,
        "repeat": rules.behaviour.repetitive_calls.minor,
    }


def kinds_table(found: Mapping[str, Any]) -> Markup:
    """Table of the kinds of decisions whose numbers differ."""
    columns = ("before", "after", "added", "gone", "changed")
    rows = [(what, *(count[name] for name in columns)) for what, count in found["kinds"].items()
            if count["added"] or count["gone"] or count["changed"]]  # fmt: skip
    return Markup(table(("decision", *columns), rows, title="Decisions under the other thresholds"))  # noqa: S704


def shifts_table(found: Mapping[str, Any], narrowing: PageFilters) -> Markup:
    """Table of the sessions that repeat themselves, keys and circuits that differ."""
    rows = []
    for one in (*found["streaks"], *found["incidents"]):
        sides = [side or {"worst": "", "asked": 0, "refused": 0} for side in (one["before"], one["after"])]
        held = [side["asked"] + side["refused"] for side in sides]
        rows.append((one["how"], one["subject"], one["session"], sides[0]["worst"], sides[1]["worst"], *held))
    columns = ("how", "what", "session_id", "before", "after", "held_before", "held_after")
    return Markup(table(columns, rows, linked(narrowing), "What differs"))  # noqa: S704


def whatif_routes(site: PageContext) -> Sequence[Route]:
    """Route of this page; it goes before those of questions."""
    trials = TrialRunner()

    async def whatif(request: Request) -> Response:
        """Render the form, and the comparison if a number is given."""
        query, rules = request.query_params, site.source.rules
        narrowing = PageFilters.of(query, site.clock())
        numbers = {name: positive(query.get(name), 0) for name, _, _ in FIELDS if query.get(name, "").isdecimal()}
        known: dict[str, Any] = {"waits": None, "why": "", "found": None}
        history, answer_headers = site.source.history, {}
        if history is None or site.source.foreign:
            known["why"] = site.source.foreign or "nothing is recorded: start `up` with `--history`"
        elif numbers:
            options = ["--history", str(history), "--limit", str(ROWS), "--examples", "0"]
            times = {"--since": narrowing.filters.since, "--until": narrowing.filters.until}
            options += [f"{name}={at.isoformat()}" for name, at in times.items() if at]
            options += [f"--{name}={one}" for name, values in narrowing.named.items() for one in values]
            try:
                trial = trials.of(tried_rules(rules, numbers), options)
                await asyncio.wait([trial.task], timeout=WAIT_S)
                if trial.task.done():
                    known["found"] = trial.task.result()
                else:
                    known["waits"], answer_headers["Refresh"] = time.monotonic() - trial.began, "3"
            except (ValueError, TrustfoldError) as fault:
                known["why"] = str(fault)
        found = known["found"] or {"kinds": {}, "streaks": [], "incidents": []}
        answer = site.render(
            request, "whatif.html", narrowing=narrowing, presets=PRESETS, names=NAMES, fields=FIELDS, numbers=numbers,
            force=in_force(rules), kinds=kinds_table(found), shifts=shifts_table(found, narrowing), **known,
        )  # fmt: skip
        answer.headers.update(answer_headers)
        return answer

    return [Route("/history/whatif", whatif)]

"""Figures of a period counted in plain Python, from raw events and from what a replay of them decides."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import orjson
from recorded import replayed
from trustfold.projections.emitter import is_record_of_call
from trustfold.rules.rules import RuleSet

Body = dict[str, Any]
Figures = dict[str, Any]

DECIDED = ("escalations", "breakers", "nudges", "suggestions")
"""Topics of decisions."""

ENDS = {"pattern.cleared", "nudge.judged", "nudge.withdrawn"}
"""Decisions that only complete another one."""


def time_of(body: Body) -> datetime:
    """Its time in UTC without a zone, as a history gives it."""
    return datetime.fromisoformat(body["time"]).astimezone(UTC).replace(tzinfo=None)


def at_ms(ms: int) -> datetime:
    """Milliseconds since 1970 as such a time."""
    return datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(milliseconds=ms)


def quantile(values: list[float], share: float) -> float | None:
    """Quantile between the two nearest values."""
    if not values:
        return None
    place = (len(values) - 1) * share
    low = sorted(values)[int(place)]
    high = sorted(values)[min(int(place) + 1, len(values) - 1)]
    return low + (high - low) * (place - int(place))


class Recount:
    """Events, calls and decisions of one run.

    Attributes:
        events: events of publishers, each id once.
        calls: records of finished calls, each with its time as `at`.
        reports: records of failures that plugins reported.
        decisions: decisions, in the order in which they were taken.
    """

    def __init__(self, lines: Iterable[bytes], rules: RuleSet | None = None) -> None:
        records = [("events", line) for line in lines]
        outputs = {
            (one.topic, one.id or number): one for number, one in enumerate(replayed(records, rules)) if one.value
        }
        told: defaultdict[str, list[Body]] = defaultdict(list)
        for one in outputs.values():
            told["calls" if is_record_of_call(one) else one.topic].append(orjson.loads(one.value or b""))
        wrong = {one["offset"] for one in told["dead-letters"]}
        self.refused = len(wrong)
        self.events: dict[str, Body] = {}
        for offset, (_, line) in enumerate(records):
            if offset not in wrong:
                body = orjson.loads(line)
                self.events.setdefault(body["id"], body)
        every = self.events | {one["id"]: one for one in told["events"]}
        for body in told["calls"]:
            body["at"] = time_of(every[body["cause"]])
        self.calls = [one for one in told["calls"] if one.get("call_id")]
        self.reports = [one for one in told["calls"] if not one.get("call_id")]
        self.decisions = [one for topic in DECIDED for one in told[topic]]

    def of(self, kind: str) -> list[Body]:
        """Decisions of one type."""
        return [one for one in self.decisions if one["type"] == kind]

    def figures(self, begin: datetime | None, end: datetime | None) -> Figures:
        """Every figure of the time from `begin`, inclusive, to `end`, exclusive, by its name."""
        first = min(map(time_of, self.events.values()))
        self.begin, self.end = (
            begin or first,
            end or max(map(time_of, self.events.values())) + timedelta(microseconds=1),
        )
        found: Figures = {}
        for part in (self._events, self._calls, self._loops, self._patterns, self._trust, self._people, self._sessions):
            found |= part()
        return found

    def within(self, time: datetime) -> bool:
        """True if a time is in the period."""
        return self.begin <= time < self.end

    def _events(self) -> Figures:
        sent = [one for one in self.events.values() if self.within(time_of(one))]
        decided = [one for one in self.decisions if one["type"] not in ENDS and self.within(time_of(one))]
        return {
            "events": len(sent),
            "sessions": len({one["session_id"] for one in sent}),
            "first event": min(map(time_of, sent), default=None),
            "last event": max(map(time_of, sent), default=None),
            "decisions": len(decided),
            "decisions by type": Counter(one["type"] for one in decided),
            "dead letters": self.refused,
        }

    def own_calls(self) -> list[Body]:
        """Calls that ended in the period."""
        return [one for one in self.calls if self.within(one["at"])]

    def _calls(self) -> Figures:
        calls = self.own_calls()
        reports = [one for one in self.reports if self.within(one["at"])]
        bad = [one for one in [*calls, *reports] if failed(one)]
        signatures = grouped((one for one in bad if one.get("signature")), "signature")
        most = min(signatures, key=lambda name: (-len(signatures[name[0],]), name), default=("",))
        twice = {name: ones for name, ones in signatures.items() if len(ones) > 1}
        found: Figures = {
            "calls": len(calls),
            "failed calls": sum(map(failed, calls)),
            "reported failures": sum(map(failed, reports)),
            "judged calls": sum(one["verdict"] != "neutral" for one in calls),
            "lost calls": sum(one["outcome"] == "lost" for one in calls),
            "failures": len(bad),
            "failures with a signature": sum(map(len, signatures.values())),
            "different failures": len(signatures),
            "signatures seen twice": {name: len(ones) for (name,), ones in twice.items()},
            "sessions of the most frequent signature": len({one["session_id"] for one in signatures.get(most, ())}),
            "failures by day": Counter(one["at"].date() for one in bad),
            "failures by severity": Counter(one["severity"] for one in bad),
        }
        for name, column in (
            ("tool", "tool_name"),
            ("model", "model"),
            ("agent", "agent_id"),
            ("session", "session_id"),
        ):
            found |= {f"{what} by {name}": value for what, value in table_of(calls, column).items()}
        cells = grouped(calls, "tool_name", "model")
        found["calls by tool and model"] = {key: tally(ones) for key, ones in cells.items() if len(ones) >= 5}
        found["failures of its own making by model"] = {
            name: sum(failed(one) and one["severity"] in {"invalid_input", "validation"} for one in ones)
            for (name,), ones in grouped(calls, "model").items()
        }
        return found

    def _loops(self) -> Figures:
        groups = grouped(
            (one for one in self.own_calls() if one.get("same_result", 0) >= 2), "session_id", "call_digest", ends_as
        )
        loops = {key: ones for key, ones in groups.items() if max(one["same_result"] for one in ones) >= 3}
        wasted = [one for ones in loops.values() for one in ones]
        tools = Counter(one["tool_name"] for one in wasted)
        models: defaultdict[str, int] = defaultdict(int)
        for ones in loops.values():
            began = min(ones, key=lambda one: (one["at"], one["origin"]))
            models[began.get("model") or "unknown"] += len(ones)
        nowhere = Counter(one["session_id"] for one in self.own_calls() if failed(one))
        for ones in loops.values():
            if not any(one["verdict"] == "failure" for one in ones):
                nowhere[ones[0]["session_id"]] += len(ones)
        return {
            "wasted calls": len(wasted),
            "wasted seconds": round(sum(one.get("duration_ms") or 0 for one in wasted) / 1000),
            "loops by tool": Counter(ones[0]["tool_name"] for ones in loops.values()),
            "wasted calls by tool": tools,
            "wasted calls by model": dict(models),
            "longest loop by tool": {
                tool: max(one["same_result"] for one in wasted if one["tool_name"] == tool) for tool in tools
            },
            "calls that led nowhere by session": +nowhere,
        }

    def _patterns(self) -> Figures:
        times: Counter[tuple[str, str]] = Counter()
        severe: Counter[tuple[str, str]] = Counter()
        stuck: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        reports: Counter[str] = Counter()
        streaks: dict[tuple[str, str, str], set[str]] = {}
        for one in self.decisions:
            if one["type"] not in {"pattern.detected", "pattern.cleared"} or not self.within(time_of(one)):
                continue
            streak = one["session_id"], one["pattern"], one["fingerprint"]
            if one["type"] == "pattern.cleared":
                streaks.pop(streak, None)
                continue
            place = one["pattern"], one.get("model") or "unknown"
            known = streaks.setdefault(streak, set())
            times[place] += place[1] not in known
            severe[place] += one["severity"] == "severe" and "severe " + place[1] not in known
            known |= {place[1], *(["severe " + place[1]] if one["severity"] == "severe" else [])}
            stuck[place].add(one["session_id"])
            reports[one["session_id"]] += 1
        active: defaultdict[str, set[str]] = defaultdict(set)
        for call in self.own_calls():
            active[call.get("model") or "unknown"].add(call["session_id"])
        by_model: defaultdict[str, set[str]] = defaultdict(set)
        for (_, model), sessions in stuck.items():
            active[model] |= sessions
            by_model[model] |= sessions
        every = {one["session_id"] for one in self.own_calls()} | reports.keys()
        judged = {one["nudge_id"]: one["effective"] for one in self.of("nudge.judged") if self.within(time_of(one))}
        nudges = [one for one in self.of("nudge.issued") if self.within(time_of(one))]
        return {
            "times stuck": times.total(),
            "times stuck by pattern and model": +times,
            "severely stuck by pattern and model": +severe,
            "stuck sessions by pattern and model": {place: len(ones) for place, ones in stuck.items()},
            "stuck sessions": len(reports),
            "sessions with calls or patterns": len(every),
            "pattern reports by session": reports,
            "stuck sessions by model": {model: len(ones) for model, ones in by_model.items()},
            "active sessions by model": {model: len(ones) for model, ones in active.items()},
            "nudges": len(nudges),
            "nudges by kind": Counter((one["pattern"], one["nudge_type"]) for one in nudges),
            "judged nudges": sum(judged.get(one["id"]) is not None for one in nudges),
            "nudges that helped": sum(judged.get(one["id"]) is True for one in nudges),
        }

    def _trust(self) -> Figures:
        outages: dict[tuple[Any, ...], list[list[Any]]] = defaultdict(list)
        open_: dict[tuple[Any, ...], list[Any]] = {}
        opened: Counter[str] = Counter()
        lost: Counter[str] = Counter()
        for one in sorted(self.of("breaker.changed") + self.of("trust.changed"), key=time_of):
            at, machine = time_of(one), one["type"].partition(".")[0]
            key = machine, one.get("breaker_key") or one["key"]
            place = (
                *key,
                one.get("workspace_id") or "default",
                one.get("user_id") if one.get("scope") == "user" else None,
            )
            if at >= self.end:
                continue
            if one["to"] in {"open", "forced_open", "escalated", "blocked", "removed"}:
                if place not in open_:
                    open_[place] = [at, None]
                    outages[key].append(open_[place])
            elif one["to"] in {"closed", "trusted"} and place in open_:
                open_.pop(place)[1] = at
            if at >= self.begin:
                opened[key[1]] += machine == "breaker" and one["to"] != "closed"
                lost[key[1]] += machine == "trust" and one["to"] in {"escalated", "blocked"}
        began = {key: [one for one in ones if self.within(one[0])] for key, ones in outages.items()}
        began = {key: ones for key, ones in began.items() if ones}
        took = {key: [(end - at).total_seconds() for at, end in ones if end] for key, ones in began.items()}
        return {
            "outages": sum(map(len, began.values())),
            "outages that ended": sum(map(len, took.values())),
            "outages by key": {key: len(ones) for key, ones in began.items()},
            "median seconds to recovery by key": {
                key: round(median(ones), 3) if ones else None for key, ones in took.items()
            },
            "openings by circuit": +opened,
            "losses of trust by key": +lost,
        }

    def _people(self) -> Figures:
        asked = [
            one for one in self.events.values() if one["type"] == "permission.requested" and self.within(time_of(one))
        ]
        answers = [
            one for one in self.events.values() if one["type"] == "permission.resolved" and self.within(time_of(one))
        ]
        ended = {(one["session_id"], one["call_id"]): one["outcome"] for one in self.own_calls()}
        answered, granted, nothing, waits = 0, 0, 0, []
        for one in asked:
            of_call = [
                two for two in answers if (two["session_id"], two["call_id"]) == (one["session_id"], one["call_id"])
            ]
            later = min((two for two in of_call if time_of(two) >= time_of(one)), key=time_of, default=None)
            if later is not None:
                answered += 1
                granted += later["granted"]
                nothing += later["granted"] and ended.get((one["session_id"], one["call_id"])) in {
                    "succeeded",
                    "answered",
                }
                waits.append((time_of(later) - time_of(one)).total_seconds())
        tried: Counter[tuple[str, str]] = Counter()
        worked: Counter[tuple[str, str]] = Counter()
        calls = sorted(self.own_calls(), key=lambda one: (one["at"], one["origin"]))
        last: dict[tuple[str, str], Body] = {}
        place: dict[str, int] = {}
        for session in {one["session_id"] for one in calls}:
            place |= {
                one["cause"]: number for number, one in enumerate(own for own in calls if own["session_id"] == session)
            }
        for one in calls:
            if one["verdict"] == "neutral":
                continue
            if (one.get("attempts") or 1) > 1:
                tried[one["tool_name"], "inside the call"] += 1
                worked[one["tool_name"], "inside the call"] += one["outcome"] == "succeeded"
            if not one.get("call_digest"):
                continue
            before = last.get((one["session_id"], one["call_digest"]))
            if before is not None and failed(before):
                kind = "at once" if place[one["cause"]] - place[before["cause"]] == 1 else "after other calls"
                tried[one["tool_name"], kind] += 1
                worked[one["tool_name"], kind] += one["outcome"] == "succeeded"
            last[one["session_id"], one["call_digest"]] = one
        return {
            "questions": len(asked),
            "answers": answered,
            "granted": granted,
            "questions for nothing": nothing,
            "median wait": round(median(waits), 3) if waits else None,
            "retries": tried.total(),
            "retries that worked": worked.total(),
            "retries by tool and kind": tried,
            "retries that worked by tool and kind": +worked,
        }

    def _sessions(self) -> Figures:
        stuck = {one["session_id"] for one in self.of("pattern.detected") if self.within(time_of(one))}
        calls = [one for one in self.own_calls() if one["session_id"] in stuck]
        return {
            "calls of stuck sessions": Counter(one["session_id"] for one in calls),
            "failures of stuck sessions": +Counter(one["session_id"] for one in calls if failed(one)),
        }


def failed(call: Body) -> bool:
    """True if a call failed, and was not expected to."""
    return call["verdict"] == "failure" and not call.get("expected")


def ends_as(call: Body) -> str:
    """Digest of its result, or signature of its failure."""
    return call.get("result_digest") or call.get("signature") or ""


def grouped(calls: Iterable[Body], *names: str | Callable[[Body], str]) -> dict[tuple[str, ...], list[Body]]:
    """Calls by fields."""
    found: defaultdict[tuple[str, ...], list[Body]] = defaultdict(list)
    for call in calls:
        key = (name(call) if callable(name) else call.get(name) or "unknown" for name in names)
        found[tuple(key)].append(call)
    return found


def tally(calls: list[Body]) -> tuple[int, int, int]:
    """Number of calls, of failures, and of those that failed or succeeded."""
    return len(calls), sum(map(failed, calls)), sum(one["verdict"] != "neutral" for one in calls)


def table_of(calls: list[Body], column: str) -> Figures:
    """Columns of calls grouped by a field."""
    groups = {key: ones for (key,), ones in grouped(calls, column).items()}
    took = {
        key: [one["duration_ms"] for one in ones if one.get("duration_ms") is not None] for key, ones in groups.items()
    }

    def half(share: float) -> Figures:
        return {
            key: round(value, 3) if (value := quantile(ones, share)) is not None else None for key, ones in took.items()
        }

    return {
        "calls": {key: tally(ones) for key, ones in groups.items()},
        "sessions": {key: len({one["session_id"] for one in ones}) for key, ones in groups.items()},
        "last call": {key: max(one["at"] for one in ones) for key, ones in groups.items()},
        "denied calls": {key: sum(bool(one.get("denied")) for one in ones) for key, ones in groups.items()},
        "lost calls": {key: sum(one["outcome"] == "lost" for one in ones) for key, ones in groups.items()},
        "half within": half(0.5),
        "95 % within": half(0.95),
    }

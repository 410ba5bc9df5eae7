"""Evidence of a decision: rule and threshold, the events that counted, and how its state ends.

A decision names its events in `caused_by`, at most 20 of them, and some kinds name the last one alone. What is missing
is counted again from the log, as the folds count it, and only taken if it comes to the numbers that the decision
states; otherwise the page says how many could not be found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...projections.calls.keys import in_quotes
from ...projections.session.detectors.registry import KINDS
from ...projections.tool.breaker import HEALTH_FAILURES
from ...projections.tool.trust import number
from ...rules.behaviour import SeverityLadder
from ...rules.circuits import BreakerPolicy
from ...rules.rules import RuleSet
from ...schemas.codec import span
from ...schemas.outcomes import DEFAULT_WORKSPACE
from ...schemas.vocabulary import PatternSeverity, PatternType
from .timeline_calls import CallAssembler, Record, TimelineCall


class EvidenceMeasure(NamedTuple):
    """Number that a decision is based on, and its threshold."""

    name: str  # what was counted, as text
    value: str  # the number, as text
    threshold: str = ""  # as text; empty if none
    met: bool | None = None  # True if the threshold was reached; None without threshold
    rule: str = ""  # the setting of the threshold, as in a rules file; empty if no single setting


class DecisionEvidence(NamedTuple):
    """Evidence of a decision."""

    decision: Record
    measures: tuple[EvidenceMeasure, ...]  # numbers it is based on
    calls: tuple[TimelineCall, ...]  # calls that counted, in the order of their ends
    events: tuple[Record, ...]  # other events that counted, oldest first
    named: int  # number of events that the decision names
    missing: tuple[str, ...]  # ids it names that are no longer stored
    how: str  # how unnamed events were found, or why not; empty if all are named
    earlier: tuple[Record, ...]  # preceding related decisions, oldest first
    later: tuple[Record, ...]  # following related decisions, oldest first
    ways_out: tuple[str, ...]  # sentences on what ends the state it began


class RecountRequest(NamedTuple):
    """Calls that a decision does not name and that must be counted again."""

    most: int
    words: str


def behind(
    decision: Record,
    events: Iterable[Record],
    related: Iterable[Record] = (),
    *,
    basis: Record | None = None,
    rules: RuleSet | None = None,
) -> DecisionEvidence:
    """Evidence of a decision.

    Args:
        decision: on the wire.
        events: what is known of the time before it, of any sessions, each in the order of the log: at least the events
            it names, with the starts of their calls.
        related: decisions of the same session, key or circuit, in order.
        basis: of a nudge, the pattern it is about: its events are what stands behind both.
        rules: in force; the thresholds that the decision does not state are theirs.
    """
    rules = rules or RuleSet()
    named = tuple((basis or decision).get("caused_by") or ())
    calls = CallAssembler(rules)
    others: dict[str, Record] = {}
    for event in events:
        if calls.add(event) is None:
            others[str(event["id"])] = event
    counted = {call.id: call for id_ in named if (call := calls.by_event.get(id_)) is not None}
    said = tuple(others[id_] for id_ in named if id_ not in calls.by_event and id_ in others)
    missing = tuple(id_ for id_ in named if id_ not in calls.by_event and id_ not in others)
    wanted = wanted_of(decision)
    how = ""
    if wanted is not None:
        before, last = calls.ended, calls.by_event.get(named[-1]) if named else None
        found = _again(decision, wanted, before[: before.index(last) + 1] if last in before else [])
        if found:
            counted = {call.id: call for call in found}
            how = f"The decision names the last event alone; {wanted.words} were counted again from the log."
        else:
            how = f"The decision names the last event alone; {wanted.words} are not in what is kept of the log."
    elif (more := _beyond(decision, len(named))) > 0:
        how = f"A decision names at most 20 events: the {len(named)} newest; {more} older ones counted as well."
    in_order = tuple(sorted(counted.values(), key=lambda call: (call.ended_ms or call.started_ms, call.started_ms)))
    earlier, later = _neighbours(decision, related)
    return DecisionEvidence(
        decision, (*(_measures(basis, rules) if basis else ()), *_measures(decision, rules)), in_order, said,
        len(named), missing, how, earlier, later, _ways_out(decision, rules),
    )  # fmt: skip


def wanted_of(decision: Record) -> RecountRequest | None:
    """Calls that must be counted again from all sessions; None if the decision names its events."""
    if decision["type"] == "breaker.changed":
        match decision["trigger"]:
            case "consecutive":
                return RecountRequest(int(decision.get("consecutive_failures") or 0), "the failures in a row")
            case "rate" | "slow_rate":
                return RecountRequest(int(decision.get("measured") or 0), "the measured calls")
    if decision["type"] == "trust.changed" and decision["trigger"] == "recovery":
        return RecountRequest(
            int(decision.get("successes") or decision.get("count") or 0), "the successes since recovery began"
        )
    return None


def _again(decision: Record, wanted: RecountRequest, before: Sequence[TimelineCall]) -> list[TimelineCall]:
    """Calls a decision is based on, counted as in the folds; none if the count differs from the decision's numbers."""
    workspace = decision.get("workspace_id") or DEFAULT_WORKSPACE
    of_it = [call for call in before if (call.workspace or DEFAULT_WORKSPACE) == workspace and _is_of(call, decision)]
    most = wanted.most
    found: list[TimelineCall] = []
    if decision["trigger"] in {"consecutive", "recovery"}:
        good = _is_ill if decision["trigger"] == "consecutive" else _worked
        for call in reversed(of_it):
            if call.counts_as == "neutral" or call.expected:
                continue
            if len(found) == most or not good(call):
                break
            found.insert(0, call)
        return found if len(found) == most else []
    found = [call for call in of_it if _worked(call) or _is_ill(call)][-most:]
    if len(found) < most:
        return []
    share = sum(map(_is_ill, found)) / most if most else 0.0
    fits = abs(share - float(decision.get("failure_rate") or 0.0)) < 0.001
    return found if fits else []


def _is_of(call: TimelineCall, decision: Record) -> bool:
    """True if a call counts for the circuit or the key of a decision."""
    if decision["type"] != "breaker.changed":
        key = str(decision["key"])
        return key in {call.key, call.tool, f"service:{call.service}"}
    kind, _, name = str(decision["breaker_key"]).partition(":")
    if kind == "tool":
        return call.tool == name and not call.service
    return (call.service if kind == "service" else call.tier) == name


def _is_ill(call: TimelineCall) -> bool:
    """True if a call's failure counts against its tool; an error answer does not, since the tool responded."""
    return call.counts_as == "failure" and not call.expected and call.severity in HEALTH_FAILURES


def _worked(call: TimelineCall) -> bool:
    return call.counts_as == "success"


def _beyond(decision: Record, named: int) -> int:
    """Number of events that counted beyond the named ones."""
    if decision["type"] == "trust.changed" and decision["trigger"] in {"count", "consecutive"}:
        return max(0, int(decision.get("count") or 0) - named) if named >= 20 else 0
    if decision["type"] == "pattern.detected":
        return max(0, int(decision["repetitions"]) - named) if named >= 20 else 0
    return 0


# --- the numbers -----------------------------------------------------------------------------------------------------


def _measures(decision: Record, rules: RuleSet) -> tuple[EvidenceMeasure, ...]:
    made = _MEASURES.get(decision["type"])
    return tuple(made(decision, rules)) if made is not None else ()


# By trigger of trust: text of the quantity it counts, with a place for the window, and setting of its threshold
_OF_TRIGGERS = {
    "rate": ("failed share{}", "trust rate_threshold"),
    "count": ("failures{}, weighted", "trust count_threshold"),
    "consecutive": ("failures in a row", "trust consecutive_threshold"),
    "exhausted": ("failures without a success while escalated", "trust block_after"),
    "promotion": ("mean failure rate over workspaces{}", "fleet failure_rate"),
    "demotion": ("mean failure rate over workspaces{}", "fleet failure_rate"),
}


def _of_trust(decision: Record, _rules: RuleSet) -> Iterable[EvidenceMeasure]:
    count, threshold, trigger = decision.get("count"), decision.get("threshold"), decision["trigger"]
    within = f" within {span(decision['window_s'])}" if decision.get("window_s") else ""
    if count is not None and trigger in _OF_TRIGGERS:
        name, rule = _OF_TRIGGERS[trigger]
        shown = _percent if trigger in {"rate", "promotion", "demotion"} else _plain
        met = None if threshold is None or rule.startswith("fleet") else bool(count >= threshold)
        yield EvidenceMeasure(name.format(within), shown(count), shown(threshold), met, rule)
    elif trigger == "repeated_auth" and count is not None:
        yield EvidenceMeasure(f"authentication failures{within}", number(count))
    if decision.get("successes_needed") and decision["to"] in {"recovering", "trusted"}:
        done, needed = decision.get("successes") or 0, decision["successes_needed"]
        rule = "trust success_count_to_recover"
        yield EvidenceMeasure("successes since recovery began", number(done), number(needed), done >= needed, rule)


def _of_circuit(decision: Record, rules: RuleSet) -> Iterable[EvidenceMeasure]:
    policy = _policy(decision, rules)
    trigger = decision["trigger"]
    in_row = decision.get("consecutive_failures")
    measured, rate = decision.get("measured"), decision.get("failure_rate")
    if in_row is not None:
        limit, rule = _plain(policy.consecutive_failures), "breakers consecutive_failures"
        yield EvidenceMeasure("failures in a row", number(in_row), limit, trigger == "consecutive", rule)
    if measured:
        words = f"{rate or 0:.0%} ({round((rate or 0) * measured)} of {measured})"
        yield EvidenceMeasure(
            f"failed share of the last {policy.rate_window_calls} calls", words,
            "" if policy.rate_threshold is None else f"{policy.rate_threshold:.0%} of at least {policy.rate_min_calls}",
            trigger == "rate", "breakers rate_threshold",
        )  # fmt: skip
    if trigger == "slow_rate":
        limit, rule = _percent(policy.slow_rate_threshold), "breakers slow_rate_threshold"
        yield EvidenceMeasure("share of slow calls", "", limit, met=True, rule=rule)


def _of_pattern(decision: Record, rules: RuleSet) -> Iterable[EvidenceMeasure]:
    found = ladder_of(decision, rules)
    if found is None:
        yield EvidenceMeasure("repetitions", number(decision["repetitions"]))
        return
    name, ladder = found
    words = (("minor", ladder.minor), ("moderate", ladder.moderate), ("severe", ladder.severe))
    steps = ", ".join(f"{word} {step}" for word, step in words if step is not None)
    yield EvidenceMeasure("repetitions", number(decision["repetitions"]), steps, met=True, rule=f"behaviour.{name}")


def _of_judgement(_decision: Record, rules: RuleSet) -> Iterable[EvidenceMeasure]:
    within = number(rules.nudges.effective_within_calls)
    yield EvidenceMeasure("calls in which it must not repeat", "", within, rule="nudges.effective_within_calls")


def _of_limit(decision: Record, _rules: RuleSet) -> Iterable[EvidenceMeasure]:
    share = "" if decision["type"] == "guarantee.violated" else "80 % of "
    yield EvidenceMeasure(
        str(decision["guarantee"]).removeprefix("max_").replace("_", " "), f"{decision['used']:g}",
        f"{share}{decision['limit']:g}", met=True, rule=f"guarantees.{decision['guarantee']}",
    )  # fmt: skip


def _of_model(decision: Record, _rules: RuleSet) -> Iterable[EvidenceMeasure]:
    for who in ("current", "suggested"):
        attempts = decision.get(f"{who}_attempts")
        of = f" of {attempts} calls" if attempts is not None else ""
        yield EvidenceMeasure(
            f"success rate of {decision[f'{who}_model']}", f"{decision[f'{who}_success_rate']:.0%}{of}"
        )


def _of_confidence(decision: Record, _rules: RuleSet) -> Iterable[EvidenceMeasure]:
    yield EvidenceMeasure("confidence", f"{decision['confidence']:.2f}", f"{decision['threshold']:.2f}", met=True)
    for name, value in (decision.get("signals") or {}).items():
        yield EvidenceMeasure(str(name).replace("_", " "), f"{value:.2f}")


_MEASURES: dict[str, Callable[[Record, RuleSet], Iterable[EvidenceMeasure]]] = {
    "trust.changed": _of_trust,
    "trust.recovery_pending": _of_trust,
    "breaker.changed": _of_circuit,
    "pattern.detected": _of_pattern,
    "pattern.cleared": lambda decision, _: [EvidenceMeasure("repetitions", number(decision["repetitions"]))],
    "nudge.judged": _of_judgement,
    "guarantee.warned": _of_limit,
    "guarantee.violated": _of_limit,
    "model_switch.suggested": _of_model,
    "confidence.low": _of_confidence,
}


def _policy(decision: Record, rules: RuleSet) -> BreakerPolicy:
    return rules.breakers.policy_for(str(decision["breaker_key"]), "")


def _plain(value: float | None) -> str:
    return "" if value is None else number(value)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


# --- related decisions, and how the state ends -----------------------------------------------------------------------


def _neighbours(decision: Record, related: Iterable[Record]) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """Related decisions before and after this one."""
    earlier: list[Record] = []
    later: list[Record] = []
    place = _thread(decision)
    passed = False
    for one in related:
        if one["id"] == decision["id"]:
            passed = True
        elif one["id"] in {decision.get("pattern_id"), decision.get("nudge_id")}:
            earlier.append(one)
        elif decision["id"] in {one.get("pattern_id"), one.get("nudge_id")}:
            later.append(one)
        elif place is not None and _thread(one) == place:
            (later if passed else earlier).append(one)
    return tuple(earlier[-NEIGHBOURS:]), tuple(later[:NEIGHBOURS])


NEIGHBOURS = 5  # Maximum decisions of the same key, circuit or streak shown before and after one


def _thread(decision: Record) -> tuple[object, ...] | None:
    """Identity shared by the decisions of one key, circuit or streak."""
    match decision["type"]:
        case "trust.changed" | "trust.recovery_pending" | "trust.danger_noted":
            return "trust", decision.get("workspace_id"), decision["key"], decision.get("scope", "key")
        case "breaker.changed":
            return "breaker", decision.get("workspace_id"), decision["breaker_key"]
        case "pattern.detected" | "pattern.cleared":
            return (
                decision["pattern"],
                decision.get("session_id"),
                decision.get("agent_id"),
                decision.get("fingerprint"),
            )
        case "guarantee.warned" | "guarantee.violated":
            return decision["guarantee"], decision.get("session_id")
    return None


def _ways_out(decision: Record, rules: RuleSet) -> tuple[str, ...]:
    match decision["type"]:
        case "trust.changed" | "trust.recovery_pending":
            hint = decision.get("recovery_hint")
            return (str(hint),) if hint else ()
        case "breaker.changed" if decision["to"] in {"open", "half_open"}:
            need = _policy(decision, rules).close_after
            probes = "one successful probe closes it" if need == 1 else f"{need} successful probes in a row close it"
            at_once = f"`trustfold breaker close {in_quotes(decision['breaker_key'])}` at once"
            return (f"after its time is over {probes}; {at_once}",)
        case "breaker.changed" if decision["to"] == "forced_open":
            return (f"an operator opened it: `trustfold breaker close {in_quotes(decision['breaker_key'])}`",)
        case "pattern.detected":
            ends = f"{KINDS[decision['pattern']].ends_with}; a message of the user ends it, too"
            expected = decision.get("expected_action")
            return (ends, str(expected)) if expected else (ends,)
        case "nudge.issued":
            within = rules.nudges.effective_within_calls
            return (
                f"it counts as followed when the pattern ends, or does not repeat within {within} calls",
                "`feedback.false_alarm` with its id leaves the model alone about this streak",
            )
        case "guarantee.warned" | "guarantee.violated":
            plan = decision.get("plan") or {}
            return (*map(str, plan.get("recommendations") or ()), "a person may lift the limit: `guarantee.overridden`")
        case "model_switch.suggested" | "confidence.low":
            message = decision.get("message")
            return (str(message),) if message else ()
    return ()


RANKS = {word: rank for rank, word in enumerate(PatternSeverity, 1)}  # 1 minor, 2 moderate, 3 severe

# Ladders used instead of a pattern's own: for polling tools, for reads with new results
_OTHERS = {
    PatternType.REPETITIVE_CALLS: ("repetitive_calls_with_news", "repetitive_calls_with_effects"),
    PatternType.ANNOUNCE_NO_ACTION: ("announce_no_action_in_turn", "announce_no_action_by_structure"),
}


def ladder_of(detected: Record, rules: RuleSet) -> tuple[str, SeverityLadder] | None:
    """Name and thresholds of the ladder that a `pattern.detected` was based on.

    None if no ladder of these rules gives this severity at this count: other rules were in force, or a policy has its
    own thresholds.
    """
    count, rank = int(detected["repetitions"]), RANKS[detected["severity"]]
    pattern = PatternType(detected["pattern"])
    candidates: list[tuple[str, SeverityLadder]] = []
    tools = detected.get("tool_sequence") or ()
    if pattern is PatternType.ERROR_RETRY_LOOP and tools and tools[-1] in rules.behaviour.error_retry_by_tool:
        candidates.append((f"error_retry_by_tool.{tools[-1]}", rules.behaviour.error_retry_by_tool[tools[-1]]))
    candidates += [(name, getattr(rules.behaviour, name)) for name in (str(pattern), *_OTHERS.get(pattern, ()))]
    return next((one for one in candidates if one[1].step(count) == rank), None)

"""Quality score of a tool: how well it does its task (docs/design/semantics.md#tool-quality).

Theory of operation. A tool starts at the score it was registered with. A failure caused by the tool reduces it, by an
amount that depends on the cause; a run of failures costs more from the fifth and again from the tenth. Each success
raises the score a little, up to the registered score, which ends the run. A tool that was not reachable or not allowed
loses nothing of its score, only its place: the scenario in which it failed lowers its rank for similar ones until it
works there.

Two failures at scenarios with the same word, because the tool is not capable of them, tag the tool `not-for-WORD`;
words of its own name are ignored. The tag expires, and is removed when the tool succeeds at such a scenario or is
restored.

A tool whose latest calls all failed by availability is down: followers rank it behind others until `unavailable_until`,
or until a call succeeds.
"""

from __future__ import annotations

import re

from ...rules.rules import QualityRules
from ...schemas import decisions as out
from ...schemas.codec import rfc3339
from ...schemas.commands import QualityMark, QualityRestore
from ...schemas.outcomes import US, CallOutcome
from ...schemas.vocabulary import FailureSeverity, QualitySeverity
from ..calls.classify import by_message
from ..emitter import time_or_none
from ..scenario import TAG_PREFIX, content_words, name_words
from .tool_state import MAX_SCENARIOS, MAX_WORDS, FailedScenario, QualityRecord, ToolFold, ToolState, WordRecord

# Failures of availability or permission, which are no evidence about a tool's capability
AVAILABILITY = frozenset(
    {FailureSeverity.TIMEOUT, FailureSeverity.TRANSIENT, FailureSeverity.PERMISSION, FailureSeverity.REPEATED_AUTH}
)

# Severities, read from a mark's message, that are no evidence that the tool is not capable of the work
_NO_CAPABILITY = AVAILABILITY | {FailureSeverity.SERVER_ERROR, FailureSeverity.CRASH, FailureSeverity.SECURITY}

# Words in an operator's message that indicate a problem of availability
_AVAILABILITY_WORDS = re.compile(
    r"\b(?:api[ _-]?keys?|credentials?|tokens?|network|connection|offline|unreachable|dns)\b"
)

# HTTP statuses by which a gateway or the service reports that it is unavailable
UNAVAILABLE_STATUS = frozenset({502, 503})

MAX_SCENARIO_CHARS = 200
DAY_MS = 86_400_000
# Half-lives after which a failed scenario is forgotten, as it would demote the tool's rank by under a hundredth
FORGOTTEN_AFTER = 5

PUBLISHED_STEP = 0.05  # Change of the score that is published when nothing else has changed

_SURCHARGE_FROM, _HIGHER_FROM = 5, 10


def registered_score(state: ToolState, rules: QualityRules) -> float:
    """Registered score of a tool, which successes restore; 0 to 1."""
    if state.quality is not None and state.quality.raised:
        return state.quality.raised
    return rules.registered(state.name)


def cost(severity: QualitySeverity, failures: int, rules: QualityRules) -> float:
    """Amount by which the `failures`-th failure of a run reduces the score."""
    base = {QualitySeverity.LOW: rules.low, QualitySeverity.MEDIUM: rules.medium, QualitySeverity.HIGH: rules.high}
    surcharge = rules.tenth if failures >= _HIGHER_FROM else rules.fifth if failures >= _SURCHARGE_FROM else 0.0
    return base[severity] + surcharge


def severity_of(outcome: CallOutcome, rules: QualityRules) -> QualitySeverity | None:
    """Quality severity of a failed call, by its cause; None if it does not reduce the score.

    A call that the tool answered with a plain refusal is LOW if it has a scenario, else None.
    """
    if outcome.severity is None or outcome.http_status in UNAVAILABLE_STATUS:
        return None
    if outcome.answered:
        return QualitySeverity.LOW if outcome.scenario else None
    return rules.by_cause.get(outcome.severity)


def is_unavailable(outcome: CallOutcome) -> bool:
    """Whether a failed call did not reach the tool or got no answer in time."""
    return (
        outcome.severity in {FailureSeverity.TIMEOUT, FailureSeverity.TRANSIENT}
        or outcome.http_status in UNAVAILABLE_STATUS
    )


def fold_call(fold: ToolFold, outcome: CallOutcome) -> None:
    """Fold one finished call; informational failures and neutral outcomes change nothing."""
    state = fold.state
    if outcome.verdict == "success":
        if state.quality is not None:
            _succeeded(fold, state.quality, outcome)
    elif outcome.verdict == "failure" and not outcome.expected:
        severity = severity_of(outcome, fold.rules.quality)
        if is_unavailable(outcome):
            _missed(fold)
        if severity is not None:
            # A rejected input or an invalid output shows that the tool cannot do it; an exception may be temporary.
            incapable = (
                outcome.severity in {FailureSeverity.INVALID_INPUT, FailureSeverity.VALIDATION} and not outcome.answered
            )
            _failed(fold, severity, outcome.scenario, incapable=incapable)
        away = severity is None and (outcome.severity in AVAILABILITY or is_unavailable(outcome))
        learned = bool(outcome.scenario) and severity is not None
        if away and outcome.scenario:
            learned = _note_scenario(_open_record(state, fold.rules.quality), outcome.scenario, fold.at)
        if state.quality is not None and (severity is not None or learned or state.quality.missed):
            _publish(fold, outcome.cause, always=learned)


def mark(fold: ToolFold, event: QualityMark) -> None:
    """Fold an explicit mark: its severity gives the cost, its message decides whether the tool is capable at all."""
    scenario = (event.scenario or "")[:MAX_SCENARIO_CHARS]
    message = (event.error_message or "").lower()
    incapable = by_message(message) not in _NO_CAPABILITY and _AVAILABILITY_WORDS.search(message) is None
    _failed(fold, event.severity, scenario, incapable=incapable)
    _publish(fold, event.id, always=True)


def restore(fold: ToolFold, event: QualityRestore) -> None:
    """Restore a tool's score, and clear its run of failures, tags and failed scenarios.

    A score above the registered one becomes the new registered score.
    """
    state = fold.state
    registered = registered_score(state, fold.rules.quality)
    score = registered if event.score is None else event.score
    old = state.quality
    state.quality = QualityRecord(
        score=score,
        raised=score if score > registered else old.raised if old is not None else 0.0,
        published=old is not None and old.published,
    )
    _publish(fold, event.id, always=True)


def _missed(fold: ToolFold) -> None:
    """Count a call that did not reach the tool."""
    at, rules = fold.at, fold.rules.quality
    record = _open_record(fold.state, rules)
    if record.missed and at - record.missed_at >= rules.unavailable_seconds * 1000:
        record.missed = 0
    record.missed = min(record.missed + 1, rules.unavailable_after)
    record.missed_at = at


def _open_record(state: ToolState, rules: QualityRules) -> QualityRecord:
    """Find the tool's record, or create a clean one."""
    if state.quality is None:
        whole = registered_score(state, rules)
        state.quality = QualityRecord(score=whole, published_score=whole)
    return state.quality


def _down_until(record: QualityRecord, rules: QualityRules) -> int:
    """Time (ms) until which the tool ranks behind others; 0 if it is not down."""
    down = record.missed >= rules.unavailable_after
    return record.missed_at + int(rules.unavailable_seconds * 1000) if down else 0


def _failed(fold: ToolFold, severity: QualitySeverity, scenario: str, *, incapable: bool) -> None:
    """Reduce the score for a failure, and record its scenario; `incapable`: the tool is not capable of the work."""
    state, at, rules = fold.state, fold.at, fold.rules.quality
    record = _open_record(state, rules)
    record.failures += 1
    record.last_failed = at
    record.score = round(max(0.0, record.score - cost(severity, record.failures, rules)), 6)
    if not scenario:
        return
    _note_scenario(record, scenario, at)
    if incapable:
        own = name_words(state.name)
        until = at + int(rules.tag_days * DAY_MS)
        for word in content_words(scenario):
            if word not in own:
                known = record.words.pop(word, None)  # keeps the words in the order of their latest failure
                failures = known.failures if known is not None and known.until > at else 0
                record.words[word] = WordRecord(failures + 1, until)
        while len(record.words) > MAX_WORDS:
            del record.words[next(iter(record.words))]


def _note_scenario(record: QualityRecord, scenario: str, at: int) -> bool:
    """Record a scenario in which the tool has just failed; whether it is a new one."""
    before = len(record.scenarios)
    record.scenarios = [one for one in record.scenarios if one.text != scenario]
    new = len(record.scenarios) == before
    record.scenarios.append(FailedScenario(scenario, at))
    del record.scenarios[:-MAX_SCENARIOS]
    return new


def _succeeded(fold: ToolFold, record: QualityRecord, outcome: CallOutcome) -> None:
    """Raise the score for a success, and remove the tags and failed scenarios that it disproves."""
    rules = fold.rules.quality
    registered = registered_score(fold.state, rules)
    if record.score < registered:
        record.score = round(min(registered, record.score + rules.earned), 6)
    if record.score >= registered:
        record.failures = 0
    record.missed = 0
    disproved = False
    if outcome.scenario and (record.words or record.scenarios):
        before = len(record.words), len(record.scenarios)
        for word in content_words(outcome.scenario):
            record.words.pop(word, None)
        record.scenarios = [one for one in record.scenarios if one.text != outcome.scenario]
        disproved = before != (len(record.words), len(record.scenarios))
    _publish(fold, outcome.cause, always=disproved)


def _forget_expired(record: QualityRecord, at: int, rules: QualityRules) -> None:
    """Remove expired words, misses and scenarios; followers derive this from the times in the public state."""
    for word in [word for word, known in record.words.items() if known.until <= at]:
        del record.words[word]
    if record.missed and at - record.missed_at >= rules.unavailable_seconds * 1000:
        record.missed = 0
    oldest = at - int(FORGOTTEN_AFTER * rules.half_life_days * DAY_MS)
    if record.scenarios and record.scenarios[0].at < oldest:
        record.scenarios = [one for one in record.scenarios if one.at >= oldest]


def publish_again(fold: ToolFold) -> None:
    """Publish the quality of a state that has one."""
    _publish(fold, fold.emit.cause, always=True)


def _publish(fold: ToolFold, cause: str, *, always: bool) -> None:
    """Publish a changed quality; a tombstone, and drop the record, once everything is as registered."""
    state, at, rules, emit = fold.state, fold.at, fold.rules.quality, fold.emit
    record = state.quality
    assert record is not None  # noqa: S101 - callers have just changed it
    _forget_expired(record, at, rules)
    registered = registered_score(state, rules)
    tool = state.name
    key = f"quality:{state.workspace_id}{US}{tool}"
    whole = record.score >= registered
    if whole and not (record.words or record.scenarios or record.raised or record.missed):
        state.quality = None
        if record.published:
            emit.tombstone("state", key)
        return
    shown = record.published_score if record.published else registered
    down_until = _down_until(record, rules)
    if down_until:  # published again before the time known to followers has passed
        always = always or down_until - record.published_down_until >= rules.unavailable_seconds * 500
    else:
        always = always or record.published_down_until > at
    if not always and abs(record.score - shown) < PUBLISHED_STEP - 1e-9 and not (whole and shown != record.score):
        return
    record.published_score, record.published, record.published_down_until = record.score, True, down_until
    tags = {TAG_PREFIX + word: known.until for word, known in record.words.items() if known.failures >= rules.tag_after}
    emit.write(
        "state",
        key,
        out.QualityUpdated(
            **emit.envelope(out.QualityUpdated),
            workspace_id=state.workspace_id,
            caused_by=(cause,),
            kind="quality",
            key=tool,
            scope="tool",
            score=record.score,
            registered_score=registered,
            failures=record.failures,
            tags=tuple(tags),
            tags_expire_at={tag: rfc3339(until) for tag, until in tags.items()},
            failed_scenarios={one.text: rfc3339(one.at) for one in record.scenarios},
            last_failure_at=time_or_none(record.last_failed),
            unavailable_until=time_or_none(down_until),
        ),
    )

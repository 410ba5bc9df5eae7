"""Profiles of models per failure key, and suggestions to switch the model (docs/design/semantics.md#models).

Theory of operation. Every call counts for its model on its failure key. Only failures that a model can cause count
against it: invalid input, invalid output, loops. Other failures (an outage, a refusal) are left out of the compared
rates. A switch is suggested when the other model is significantly better: the lower Wilson bound of its success rate
lies above the upper bound of the current model's, and the rates differ by at least `min_difference`. Only available
models are suggested: those that the session declared, or, if it declared none, those that called the tool within the
last 30 days.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

from ...rules.rules import ModelRules
from ...schemas import decisions as out
from ...schemas.outcomes import OWN_MAKING, US, CallOutcome, PatternSeen
from ...schemas.vocabulary import ModelSwitchStrategy
from ..calls.fingerprints import digest
from ..calls.keys import tool_key
from ..emitter import time_or_none
from .tool_state import (
    FIRST_FAILURES_PUBLISHED,
    FIRST_PUBLISHED_AT,
    MAX_MODEL_EVIDENCE,
    MAX_MODEL_KEYS,
    MAX_MODELS,
    MAX_SUGGESTIONS,
    KeyProfile,
    ToolFold,
    ToolState,
)

# Age in milliseconds of a model's last call above which it is suggested only if the session declares it available
SEEN_WITHIN_MS = 30 * 86_400_000


Z_90 = 1.6448536269514722  # Half width, in standard deviations, of the central 90 % of a normal distribution
Z_95 = 1.959963984540054  # The same of the central 95 %


class ModelSuccess(NamedTuple):
    """Success rate of a model on a key, failures of other causes left out."""

    rate: float  # success rate, 0 to 1
    measured: int  # number of calls and patterns that it was computed from
    lower: float  # lower bound of the two-sided 90 % confidence interval
    upper: float  # upper bound of the interval


class BetterModel(NamedTuple):
    """A better model, with its rates and those of the current model."""

    model: str
    theirs: ModelSuccess
    current: ModelSuccess


def wilson_bounds(successes: int, trials: int, z: float = Z_90) -> tuple[float, float]:
    """Bounds of Wilson's score interval for `successes` of `trials`, each 0 to 1; (0, 1) without a trial."""
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes of {trials} trials cannot be")
    if not trials:
        return 0.0, 1.0
    rate = successes / trials
    square = z * z
    middle = rate + square / (2 * trials)
    spread = z * sqrt(rate * (1 - rate) / trials + square / (4 * trials * trials))
    scale = 1 + square / trials
    lower = (middle - spread) / scale if successes else 0.0  # exactly 0 or 1 at the ends, despite rounding
    upper = (middle + spread) / scale if successes < trials else 1.0
    return max(0.0, lower), min(1.0, upper)


def standing(profile: KeyProfile) -> ModelSuccess:
    """Success rate and confidence interval of a profile."""
    measured = profile.attempts - (profile.failures - profile.own) + profile.patterns
    good = measured - profile.own - profile.patterns
    lower, upper = wilson_bounds(good, measured)
    return ModelSuccess(good / measured if measured else 0.0, measured, lower, upper)


def better_model(
    profiles: dict[str, KeyProfile],
    current: str,
    rules: ModelRules,
    is_available: Callable[[str], bool] = lambda _model: True,
) -> BetterModel | None:
    """The available model to suggest in place of `current`; None if none is significantly better.

    Of several, the one with the highest lower bound; `preferred_models` decide among those whose interval overlaps
    with its interval.
    """
    mine = profiles.get(current)
    if mine is None or mine.own + mine.patterns < rules.min_failures:
        return None
    here = standing(mine)
    found = [
        BetterModel(model, there, here)
        for model, profile in profiles.items()
        if model != current
        and (there := standing(profile)).lower > here.upper
        and there.rate - here.rate >= rules.min_difference
        and is_available(model)
    ]
    if not found:
        return None
    best = min(found, key=lambda one: (-one.theirs.lower, one.model))
    alike = {one.model: one for one in found if one.theirs.upper >= best.theirs.lower}
    preferred = next((alike[model] for model in rules.preferred_models if model in alike), None)
    return preferred or best


def fold_call(fold: ToolFold, outcome: CallOutcome) -> None:
    """Count a finished call for its model; informational failures and neutral outcomes are ignored."""
    if not outcome.model or outcome.expected or outcome.verdict == "neutral":
        return
    key, profile = _open_profile(fold, outcome.fine_key, outcome.model)
    profile.attempts += 1
    profile.last_at = fold.at
    if outcome.verdict == "success":
        if profile.attempts >= profile.tell_at:
            _publish(fold, key, outcome.model, profile)
        return
    profile.failures += 1
    profile.last_failed = fold.at
    if outcome.severity in OWN_MAKING and not outcome.answered:
        profile.own += 1
        _blame(fold, key, profile, outcome)
    if profile.failures + profile.patterns >= profile.bad_at:
        _publish(fold, key, outcome.model, profile)


def fold_pattern(fold: ToolFold, seen: PatternSeen) -> None:
    """Count a detected pattern against the model that showed it with the tool."""
    if not seen.model:
        return
    key, profile = _open_profile(fold, seen.fine_key, seen.model)
    profile.patterns += 1
    profile.last_at = fold.at
    _blame(fold, key, profile, seen)
    if profile.failures + profile.patterns >= profile.bad_at:
        _publish(fold, key, seen.model, profile)


def _open_profile(fold: ToolFold, fine_key: str, model: str) -> tuple[str, KeyProfile]:
    """Find or create the profile of a model; returns also its key: the tool's own key once there are too many."""
    state, models = fold.state, fold.state.models
    key = fine_key
    profiles = models.get(key)
    if profiles is None:
        if len(models) >= MAX_MODEL_KEYS:
            key = tool_key(state.name)
        profiles = models.setdefault(key, {})
    profile = profiles.get(model)
    if profile is None:
        if len(profiles) >= MAX_MODELS:
            unused = min(profiles, key=lambda name: (profiles[name].last_at, name))
            if profiles.pop(unused).tell_at > FIRST_PUBLISHED_AT:
                fold.emit.tombstone("state", _record_key(state, key, unused))
        profile = profiles[model] = KeyProfile()
    return key, profile


def _blame(fold: ToolFold, key: str, profile: KeyProfile, event: CallOutcome | PatternSeen) -> None:
    """Record evidence against a model, and suggest a better one, once per session and key."""
    profile.evidence.append(event.cause)
    del profile.evidence[:-MAX_MODEL_EVIDENCE]
    state, rules = fold.state, fold.rules.models
    strategy = event.model_switch or rules.strategy
    if strategy is ModelSwitchStrategy.DISABLED:
        return
    better = better_model(state.models[key], event.model, rules, _availability(state, event, fold.at))
    if better is None:
        return
    mark = digest(f"{event.session_id}{US}{key}".encode())
    if mark in state.model_suggestions:
        return
    state.model_suggestions.append(mark)
    del state.model_suggestions[:-MAX_SUGGESTIONS]
    fold.emit.write(
        "suggestions",
        event.session_id or event.model,
        out.ModelSwitchSuggested(
            **fold.emit.envelope(out.ModelSwitchSuggested),
            session_id=event.session_id or None,
            workspace_id=state.workspace_id,
            caused_by=tuple(profile.evidence),
            current_model=event.model,
            suggested_model=better.model,
            failure_key=key,
            current_success_rate=round(better.current.rate, 4),
            suggested_success_rate=round(better.theirs.rate, 4),
            current_attempts=better.current.measured,
            suggested_attempts=better.theirs.measured,
            strategy=strategy,
            message=_message(key, better, strategy),
        ),
    )


def _availability(state: ToolState, event: CallOutcome | PatternSeen, at: int) -> Callable[[str], bool]:
    """Predicate of the models that may be suggested: those that the session declared, else those seen recently."""
    if event.models is not None:
        return event.models.__contains__
    return lambda model: any(
        model in profiles and profiles[model].last_at >= at - SEEN_WITHIN_MS for profiles in state.models.values()
    )


def _message(key: str, better: BetterModel, strategy: ModelSwitchStrategy) -> str:
    """Text for the user (docs/design/semantics.md#models)."""
    if strategy is ModelSwitchStrategy.AUTO:
        return f"Auto-switched to '{better.model}' for better reliability with '{key}'"
    return (
        f"Model '{better.model}' has {better.theirs.rate:.0%} success rate with '{key}' vs current "
        f"{better.current.rate:.0%}. Consider: model {better.model}"
    )


def _record_key(state: ToolState, key: str, model: str) -> str:
    return f"model:{state.workspace_id}{US}{key}{US}{model}"


def published_keys(state: ToolState) -> list[str]:
    """Keys on the `state` topic of the published profiles."""
    return [
        _record_key(state, key, model)
        for key, profiles in state.models.items()
        for model, profile in profiles.items()
        if profile.tell_at > FIRST_PUBLISHED_AT
    ]


def publish_again(fold: ToolFold) -> None:
    """Publish the profiles that were published before."""
    for key, profiles in fold.state.models.items():
        for model, profile in profiles.items():
            if profile.tell_at > FIRST_PUBLISHED_AT:
                _publish(fold, key, model, profile)


def _publish(fold: ToolFold, key: str, model: str, profile: KeyProfile) -> None:
    """Publish a profile, and set its next publication so that the published rate is off by at most an eighth."""
    profile.tell_at = max(FIRST_PUBLISHED_AT + 1, 2 * profile.attempts)
    bad = profile.failures + profile.patterns
    profile.bad_at = bad + 1 + bad // FIRST_FAILURES_PUBLISHED
    attempts = profile.attempts
    fold.emit.write(
        "state",
        _record_key(fold.state, key, model),
        out.ModelUpdated(
            **fold.emit.envelope(out.ModelUpdated),
            workspace_id=fold.state.workspace_id,
            kind="model",
            key=key,
            scope="model",
            model=model,
            attempts=attempts,
            failures=profile.failures,
            success_rate=round(1 - profile.failures / attempts, 4) if attempts else None,
            last_failure_at=time_or_none(profile.last_failed),
        ),
    )

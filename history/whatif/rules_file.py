"""Writer of chosen rules as TOML for `--rules` and `TRUSTFOLD_RULES`, with their origin as a comment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from ...rules.parser import as_toml
from .choice import Change, Interval
from .search import Found

_WIDTH = 110


def toml_of(found: Found, basis: Sequence[str]) -> str:
    """Chosen rules as TOML: all values that differ from the defaults, after comments on origin and effect.

    `basis`: sentences on the data of the search, which has a choice.
    """
    assert found.chosen is not None  # noqa: S101 - the caller has checked it
    trial = found.trials[found.chosen]
    told = [
        "Rules chosen by `trustfold whatif --search`. They hold all that is not as shipped, so that they stand alone.",
        "Chosen: " + ", ".join(f"{path} = {value}" for path, value in trial.values.items()),
        *basis,
        *_prices(found),
    ]
    lines = [line for text in told for line in wrap("".join(c if c.isprintable() else " " for c in text), _WIDTH)]
    return "".join(f"# {line}\n" for line in lines) + "\n" + as_toml(found.rules[found.chosen])


def _prices(found: Found) -> Iterator[str]:
    where = ((found.choice.price_by, "the sessions it was chosen by"), (found.choice.price, "the sessions held out"))
    for price, which in where:
        if price is not None:
            yield f"Against the rules then in force, on {which} ({price.verdict}):"
            yield from price_lines(price)
    if found.choice.price is None:
        yield "No sessions were held out: on others it will do worse than on those it was chosen by."


def price_lines(price: Change) -> list[str]:
    """Lines on the changes by a choice, in counts and with intervals."""
    first, second = price.before, price.after
    low, high = price.recall_95
    alarms, missed = _changed(price.false_alarms, price.false_alarms_95), _changed(-price.recall, (-high, -low))
    lines = [
        f"  healthy sessions with an alarm: {first.alarmed} -> {second.alarmed} of {second.healthy} ({alarms})",
        f"  stuck sessions missed: {first.missed} -> {second.missed} of {second.stuck} ({missed})",
    ]
    if price.calls_later is not None:
        number = abs(price.calls_later)
        by = f"{number:g} call{'' if number == 1 else 's'} {'later' if price.calls_later > 0 else 'earlier'}"
        at = by if price.calls_later else "at the same call"
        lines.append(f"  the {price.both_catch} that both catch: {at} (median)")
    return lines


def _changed(share: float, bounds: Interval) -> str:
    """A change of a fraction and its interval, as signed percentages."""
    change, low, high = (f"{one:+z.1%}".replace("%", " %") for one in (share, *bounds))
    return f"change of the share {change}, 95 %: {low} to {high}"

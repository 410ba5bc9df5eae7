"""Columns of recorded decisions, compared with the fields of the contract."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import orjson
import pytest
from trustfold.history.decision_rows import COLUMNS, row_of
from trustfold.schemas.examples import EXAMPLES
from trustfold.schemas.public_state import STATE_KINDS, DecisionBase, StateUpdated
from trustfold.schemas.topics import TOPICS

COLUMN_OF = {"from": "from_state", "to": "to_state"}
PREFIXES = {"escalations": "trust_", "state": "state_"}
"""Beginning of columns whose field has the name of a column of every topic, such as `key`."""

IN_RECORD_ALONE = {
    "escalations": "recovery_hint notification permission_warning part_of danger made",
    "nudges": "agent_id turn_index correlation_id request notify_user",
    "suggestions": "signals plan",
    "state": """escalated_at cooldown_until recovery_at recovery_pending denials dangerous_calls last_failure_at
        last_success_at failure_history part_of approval_id approval_expires_at approval_session_id
        last_error last_failed_session failed_sessions trigger
        successes successes_needed window_s
        opened_at first_opened_at lease reopen_count time_in_state_ms
        severity acknowledged_at acknowledged_by
        registered_score tags tags_expire_at failed_scenarios unavailable_until
        model turns stalled_turns stall_rate pattern_counts most_common_pattern false_alarms
        nudges_sent nudges_judged nudges_effective nudge_effectiveness""",
}
"""Fields that no view shows, by topic: queries read them from the column `record`."""


def decisions() -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Topic and struct of every decision and public state."""
    for name, topic in TOPICS.items():
        for kind in topic.kinds:
            if kind is StateUpdated:
                yield from ((name, state) for state in STATE_KINDS.values())
            elif issubclass(kind, DecisionBase):
                yield name, kind


def own_fields(kind: type[msgspec.Struct]) -> list[str]:
    """Fields of a decision besides the envelope, as on the wire."""
    return [name for name in kind.__struct_encode_fields__ if name not in DecisionBase.__struct_encode_fields__]


def columns_of(topic: str, field: str) -> set[str]:
    """Columns that can hold a field."""
    return {COLUMN_OF.get(field, field), PREFIXES.get(topic, "") + field} & COLUMNS[topic].keys()


@pytest.mark.parametrize(("topic", "kind"), list(decisions()))
def test_every_field_has_a_column_or_is_left_in_the_record(topic: str, kind: type[msgspec.Struct]) -> None:
    """One of both is chosen when a field is added."""
    left = set(IN_RECORD_ALONE.get(topic, "").split())
    undecided = [field for field in own_fields(kind) if field not in left and not columns_of(topic, field)]
    assert not undecided, (
        f"{kind.__name__}: give {', '.join(undecided)} a column in history/decision_rows.py ({topic}), "
        f"or add it to IN_RECORD_ALONE[{topic!r}] here"
    )


@pytest.mark.parametrize("topic", IN_RECORD_ALONE)
def test_what_is_left_in_the_record_exists_and_has_no_column(topic: str) -> None:
    """Names of fields that went, or got a column, go here too."""
    fields = {field for name, kind in decisions() if name == topic for field in own_fields(kind)}
    left = set(IN_RECORD_ALONE[topic].split())
    assert left <= fields
    assert not [field for field in left if columns_of(topic, field)]


@pytest.mark.parametrize(("topic", "kind"), [(topic, kind) for topic, kind in decisions() if topic != "state"])
def test_the_columns_hold_what_the_example_says(topic: str, kind: type[msgspec.Struct]) -> None:
    """A column of the wrong type would stay empty."""
    example = EXAMPLES[str(kind.__struct_config__.tag)]
    row = row_of(topic, 0, 0, 0, None, orjson.dumps(example))
    with_columns = [field for field in own_fields(kind) if field in example and columns_of(topic, field)]
    assert with_columns
    assert not [field for field in with_columns if all(row.get(name) is None for name in columns_of(topic, field))]


@pytest.mark.parametrize("poison", [b'{"a":' * 3_000, b'{"id":"\xff"}', b"["])
@pytest.mark.parametrize("topic", TOPICS)
def test_a_record_that_nobody_can_read_has_a_row(topic: str, poison: bytes) -> None:
    """The recorder keeps where it lies, and goes on."""
    assert row_of(topic, 1, 2, 0, "k", poison)["fault"] == "not_json"

"""The values of the `dead-letters` topic."""

from __future__ import annotations

from typing import Literal

import msgspec


class DeadLetter(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type", tag="dead_letter"):
    """A record that could not be processed, whole, with the reason (docs/design/contracts.md#bad-input).

    Attributes:
        schema_version: "1.x".
        id: digest of topic, partition and offset.
        topic: where it stood, catalogue name.
        partition: where it stood.
        offset: where it stood.
        reason: stable code.
        path: JSON path of the fault.
        message: what is wrong and what to do about it.
        time: timestamp of the record; absent when it had none.
        key: its key, where that is text.
        key_base64: its key, where that is not.
        value: its value, where that is text.
        value_base64: its value, where that is not.
    """

    schema_version: str
    id: str
    topic: str
    partition: int
    offset: int
    reason: str
    path: str
    message: str
    time: str | None = None
    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None


class DeadLetterRepublished(
    msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type", tag="dead_letter.republished"
):
    """A mark on a dead letter: an operator publishes its record again, or has.

    Attributes:
        schema_version: "1.x".
        id: digest of letter, attempt and state.
        dead_letter_id: the dead letter; also the key of the mark.
        attempt_id: the run that wrote it.
        state: `claimed` before the record is sent, `sent` after the brokers have it.
        time: when, by the operator's clock.
    """

    schema_version: str
    id: str
    dead_letter_id: str
    attempt_id: str
    state: Literal["claimed", "sent"]
    time: str

"""The envelope of every output event (docs/design/contracts.md#output-events)."""

from __future__ import annotations

import msgspec


class DecisionBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """The envelope of every output.

    Attributes:
        schema_version: "1.x".
        id: digest of the causing input event, the type, and a running number; a replay gives the same.
        time: when it was decided, in event time.
        session_id: the session it is about, or in which it was caused.
        workspace_id: the workspace it is about.
        user_id: the user it is about.
        caused_by: ids of the input events behind it, newest last, at most 20.
    """

    schema_version: str
    id: str
    time: str
    session_id: str | None = None
    workspace_id: str | None = None
    user_id: str | None = None
    caused_by: tuple[str, ...] = ()

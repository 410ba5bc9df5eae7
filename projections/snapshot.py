"""States as bytes: a fixed header that can be read without decoding, then MessagePack.

The header holds the state version, the key's stream time and the time its next change falls due, so an engine that
recovers a million keys can find what is due without decoding one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, Generic, TypeVar

import msgspec

from ..errors import StateIncompatible
from .stage import KeyState, Stage

StateT = TypeVar("StateT", bound=KeyState)

_HEADER = Struct(">BQQ")
_NEVER = 0


def header(snapshot: bytes) -> tuple[int, int, int | None]:
    """State version, stream time and due time (None: nothing due) of a snapshot."""
    version, clock, due = _HEADER.unpack_from(snapshot)
    return version, clock, due or None


class SnapshotCodec(Generic[StateT]):
    """Encodes and decodes the states of one stage."""

    def __init__(
        self, state_type: type[StateT], version: int, older: Mapping[int, Callable[[memoryview], StateT]] | None = None
    ) -> None:
        """Prepare for one state type; `version` is 1 to 255, and `older` reads the states of versions before it."""
        self.version = version
        self._older = older or {}
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: Any = msgspec.msgpack.Decoder(state_type)

    def encode(self, state: StateT, due: int | None) -> bytes:
        """Snapshot of a state whose next change falls due at `due` milliseconds."""
        return _HEADER.pack(self.version, state.clock, due or _NEVER) + self._encoder.encode(state)

    def decode(self, snapshot: bytes) -> StateT:
        """State of a snapshot.

        Raises:
            StateIncompatible: it was written by a version that this one cannot read.
        """
        version = snapshot[0] if snapshot else 0
        read = self._decoder.decode if version == self.version else self._older.get(version)
        if read is None:
            msg = (
                f"stored state has version {version}, this trustfold reads version {self.version}; "
                "deploy the version that wrote it, or rebuild the state from the events"
            )
            raise StateIncompatible(msg)
        try:
            state: StateT = read(memoryview(snapshot)[_HEADER.size :])
        except msgspec.DecodeError as error:
            msg = f"stored state of version {version} does not decode: {error}; rebuild it from the events"
            raise StateIncompatible(msg) from error
        return state


def codec_of(stage: Stage[StateT]) -> SnapshotCodec[StateT]:
    """The codec for the states of a stage."""
    return SnapshotCodec(stage.state_type, stage.state_version, stage.older_states)

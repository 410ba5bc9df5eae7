"""Encodes states as bytes: a fixed header that can be read without decoding, then MessagePack.

The header holds the state version, the key's stream time and its next deadline, so that a recovery of a million keys
finds what is due without decoding any.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Generic, Self, TypeVar

import msgspec

from ..errors import StateIncompatible
from .stage import KeyState, TopologyStage

StateT = TypeVar("StateT", bound=KeyState)


class PackedValue:
    """Base class of values that a snapshot holds in another form than memory: `pack` and `unpack` translate."""

    __slots__ = ()

    def pack(self) -> bytes:
        """Return the form for a snapshot; equal values give equal bytes."""
        raise NotImplementedError

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Return the value of a packed form."""
        raise NotImplementedError


def _pack(value: Any) -> bytes:
    if isinstance(value, PackedValue):
        return value.pack()
    msg = f"no form for {type(value)}"
    raise NotImplementedError(msg)


def _unpack(kind: type[PackedValue], packed: Any) -> PackedValue:
    if not isinstance(packed, bytes):
        raise msgspec.ValidationError(f"bytes of a {kind.__name__} expected")
    return kind.unpack(packed)


_HEADER = Struct(">BQQ")
_NEVER = 0


def header(snapshot: bytes) -> tuple[int, int, int | None]:
    """Return state version, stream time and deadline (None: none) of a snapshot."""
    version, clock, due = _HEADER.unpack_from(snapshot)
    return version, clock, due or None


class SnapshotCodec(Generic[StateT]):
    """Encodes and decodes the states of one stage."""

    def __init__(self, state_type: type[StateT], version: int) -> None:
        """Create a codec for one state type; `version` is 1 to 255."""
        self.version = version
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_pack)
        self._decoder: Any = msgspec.msgpack.Decoder(state_type, dec_hook=_unpack)

    def encode(self, state: StateT, due: int | None) -> bytes:
        """Encode a state whose next deadline is `due`, milliseconds."""
        return _HEADER.pack(self.version, state.clock, due or _NEVER) + self._encoder.encode(state)

    def decode(self, snapshot: bytes) -> StateT:
        """Decode a state."""
        version = snapshot[0] if snapshot else 0
        if version != self.version:
            msg = (
                f"stored state has version {version}, this trustfold reads version {self.version}; "
                "deploy the version that wrote it, or rebuild the state from the events"
            )
            raise StateIncompatible(msg)
        try:
            state: StateT = self._decoder.decode(memoryview(snapshot)[_HEADER.size :])
        except msgspec.DecodeError as error:
            msg = f"stored state of version {version} does not decode: {error}; rebuild it from the events"
            raise StateIncompatible(msg) from error
        return state


def codec_of(stage: TopologyStage[StateT]) -> SnapshotCodec[StateT]:
    """Return the codec for the states of a stage."""
    return SnapshotCodec(stage.state_type, stage.state_version)

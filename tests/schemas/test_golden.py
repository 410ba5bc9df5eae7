"""Golden records of every wire type: whoever stored them can read them for as long as the major version lives."""

from pathlib import Path

import msgspec
import orjson
from trustfold.schemas.codec import decode_command, decode_decision, decode_event, decode_settings, encode
from trustfold.schemas.topics import TOPICS

HOME = Path(__file__).parent / "golden" / "v1"
DECODERS = {"events": decode_event, "commands": decode_command, "settings": decode_settings}
TYPES = {wire: topic.name for topic in TOPICS.values() for wire in topic.types}


def decoded(wire: str) -> msgspec.Struct:
    """The golden record of a type, by the decoder of its topic."""
    return DECODERS.get(TYPES[wire], decode_decision)((HOME / f"{wire}.json").read_bytes())


def test_every_type_has_its_record() -> None:
    """A new type comes with a golden record, and none is ever removed."""
    assert sorted(path.stem for path in HOME.glob("*.json")) == sorted(TYPES)


def test_a_record_reads_and_writes_to_the_same_bytes() -> None:
    """Nothing is lost, renamed, reordered or reformatted on the way through."""
    for wire in TYPES:
        assert encode(decoded(wire)) == (HOME / f"{wire}.json").read_bytes(), wire


def test_a_record_of_a_newer_publisher_means_the_same() -> None:
    """Fields and a minor version from the future change nothing that is known today."""
    for wire, topic in TYPES.items():
        newer = {**orjson.loads((HOME / f"{wire}.json").read_bytes()), "from_the_future": {"a": [1, None]}}
        decode = DECODERS.get(topic, decode_decision)
        assert decode(orjson.dumps(newer)) == decoded(wire), wire
        later = decode(orjson.dumps({**newer, "schema_version": "1.9"}))
        assert msgspec.structs.replace(later, schema_version="1.0") == decoded(wire), wire

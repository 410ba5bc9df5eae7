"""The AsyncAPI document: structure by its own rules, messages by their schemas, the whole by AsyncAPI's own parser."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from trustfold.schemas.generate import HOME
from trustfold.schemas.topics import TOPICS

DOCUMENT: dict[str, Any] = json.loads((HOME / "asyncapi.json").read_text(encoding="utf-8"))
ROOT = Path(__file__).parents[2]
PARSE = """
const { Parser } = require('@asyncapi/parser');
new Parser().parse(require('fs').readFileSync(process.argv[1], 'utf8')).then(({ document, diagnostics }) => {
  for (const fault of diagnostics) console.log(fault.severity, fault.path.join('.'), fault.message);
  process.exit(document && !diagnostics.length ? 0 : 1);
});
"""


def resolved(pointer: str) -> Any:
    """What a local reference points to."""
    assert pointer.startswith("#/")
    here: Any = DOCUMENT
    for part in pointer[2:].split("/"):
        here = here[part.replace("~1", "/").replace("~0", "~")]
    return here


def references(value: Any) -> list[str]:
    """Every reference anywhere in a value."""
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [pointer for inner in value.values() for pointer in references(inner)]
    if isinstance(value, list):
        return [pointer for inner in value for pointer in references(inner)]
    return []


def test_every_reference_leads_somewhere() -> None:
    """No reference points out of the document or into nothing."""
    found = references(DOCUMENT)
    assert found
    for pointer in found:
        assert isinstance(resolved(pointer), dict)


def test_every_topic_is_a_channel_with_kafkas_settings() -> None:
    """A reader can create the topics from the document."""
    assert list(DOCUMENT["channels"]) == list(TOPICS)
    for name, topic in TOPICS.items():
        channel = DOCUMENT["channels"][name]
        kafka = channel["bindings"]["kafka"]
        assert channel["address"] == kafka["topic"] == f"trustfold.{name}"
        assert kafka["partitions"] == 12
        assert kafka["topicConfiguration"]["cleanup.policy"] == [topic.cleanup]
        assert kafka["topicConfiguration"].get("retention.ms") == topic.retention_ms
        assert list(channel["messages"]) == list(topic.types)


def test_operations_say_what_trustfold_does() -> None:
    """It receives inputs, sends decisions, and does both on the topics between its stages."""
    actions: dict[str, set[str]] = {}
    for operation in DOCUMENT["operations"].values():
        channel = operation["channel"]["$ref"].rpartition("/")[2]
        actions.setdefault(channel, set()).add(operation["action"])
        for message in operation["messages"]:
            assert message["$ref"].startswith(f"#/channels/{channel}/messages/")
    both, sent, received = {"send", "receive"}, {"send"}, {"receive"}
    assert actions == {
        "events": both,
        "outcomes": both,
        "standings": both,
        "commands": received,
        "settings": received,
        "rules": sent,
        "escalations": sent,
        "breakers": sent,
        "nudges": sent,
        "suggestions": sent,
        "state": sent,
        "dead-letters": sent,
    }


@pytest.mark.parametrize("wire", sorted(DOCUMENT["components"]["messages"]))
def test_a_message_is_named_keyed_and_valid(wire: str) -> None:
    """Each message has a key, and its example satisfies its payload."""
    message = DOCUMENT["components"]["messages"][wire]
    assert message["name"] == wire
    assert message["bindings"]["kafka"]["key"]["description"]
    schema = {**message["payload"], "components": DOCUMENT["components"]}
    for example in message["examples"]:
        Draft202012Validator(schema).validate(example["payload"])


def test_asyncapis_own_parser_has_no_complaint() -> None:
    """The parser of the AsyncAPI initiative takes the document without a single diagnostic."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    if subprocess.run(
        [node, "-e", "require.resolve('@asyncapi/parser')"], cwd=ROOT, capture_output=True, check=False
    ).returncode:
        pytest.skip("no AsyncAPI parser: npm install --no-save --no-package-lock @asyncapi/parser")
    run = subprocess.run(
        [node, "-e", PARSE, str(HOME / "asyncapi.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 0, run.stdout + run.stderr

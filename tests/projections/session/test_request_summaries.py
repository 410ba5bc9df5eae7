"""What a record says of a call's request: enough to know it, and nothing secret."""

from __future__ import annotations

from itertools import cycle

import orjson
import pytest
from recorded import calls_in
from secret_kinds import KINDS
from story import Story


def summary(tool: str, args: object) -> str:
    """The summary of a call, from its record."""
    (record,) = calls_in(Story().works(tool, args).records)
    return str(orjson.loads(record).get("summary", ""))


@pytest.mark.parametrize(
    ("tool", "args", "expected"),
    [
        ("bash", {"command": "git push\n--force"}, "git push --force"),
        ("Read", {"file_path": "/src/a/FileList.tsx", "limit": 3}, "/src/a/FileList.tsx"),
        ("Grep", {"pattern": "def main", "path": "src", "-n": True}, "src, def main"),
        ("fetch", {"url": "https://example.com/a/b"}, "https://example.com/a/b"),
        ("book", {"seat": 12, "user_id": "mia_li_36"}, "seat=12, user_id=mia_li_36"),
        ("book", {"password": "12", "seat": 4}, "seat=4"),
        ("ask", {"prompt": "password: 1234abc"}, "password: [redacted]"),
        ("list", {}, ""),
    ],
)
def test_a_summary_names_the_request(tool: str, args: object, expected: str) -> None:
    """The command, the path, the pattern; of other calls the arguments."""
    assert summary(tool, args) == expected


def test_a_long_request_is_cut_between_words() -> None:
    """To two hundred characters."""
    found = summary("bash", {"command": "echo " + "word " * 200})
    assert len(found) <= 200
    assert found.endswith("word…")


def test_no_summary_holds_a_secret() -> None:
    """Whatever the argument is called, and wherever the text is cut."""
    shown = {
        kind: found
        for (kind, (text, secret)), name in zip(KINDS.items(), cycle(("path", "query", "anything")), strict=False)
        for before in ("", "see ", "x " * 95)
        if secret in (found := summary("lookup", {name: before + text}))
    }
    assert shown == {}

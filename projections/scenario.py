"""Content words of scenarios and tool names, and the tags made of them.

See docs/design/semantics.md#tool-quality.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_CONTENT_WORDS = 8  # Largest number of content words of a scenario

TAG_PREFIX = "not-for-"

_WORD = re.compile(r"[^\W_]{2,40}")
_JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")
_FUNCTION_WORDS = frozenset(
    """a about after all also an and any are as at be been before but by can could do does each for from get give has
    have how i if in into is it its let make me more most my new no not now of on one only or other our out over own
    please run should so some such that the their them then there these they this those to up us use used using via
    was we what when where which while who will with would you your""".split()
)


@lru_cache(maxsize=1024)
def content_words(text: str) -> tuple[str, ...]:
    """Return the content words of a text: lower case, each once, in order, at most eight."""
    words = (word.lower() for word in _WORD.findall(text))
    return tuple(dict.fromkeys(word for word in words if word not in _FUNCTION_WORDS))[:MAX_CONTENT_WORDS]


def name_words(tool_name: str) -> tuple[str, ...]:
    """Return the words of a tool's name: `python_code_analyzer` gives python, code, analyzer."""
    return content_words(_JOINT.sub(" ", tool_name))

"""Number of words of a text, for `user.message`."""

from __future__ import annotations

import re

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u30a1-\u30fa\u30fc\u31f0-\u31ff\uff66-\uff9d"
_WITHOUT_SPACES = "\u0e01-\u0eff\u0f40-\u0fbc\u1000-\u109f\u1780-\u17dd"
"""Thai, Lao, Tibetan, Burmese, Khmer."""

_WORD = re.compile(
    f"[{_HAN}]|[{_KANA}]{{1,3}}|[{_WITHOUT_SPACES}]{{1,5}}"
    f"|[^\\W{_HAN}{_KANA}{_WITHOUT_SPACES}][^\\s{_HAN}{_KANA}{_WITHOUT_SPACES}]*"
)


def words_in(text: str) -> int:
    """Count the words of a text: what spaces separate, marks alone left out.

    In writing without spaces each Chinese character counts, and as many characters of the others as a word of theirs
    usually has.
    """
    return sum(1 for _ in _WORD.finditer(text))

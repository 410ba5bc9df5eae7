"""Words of a text in every writing: what they are counted for is to tell "go on" from a request."""

import pytest
from trustfold.schemas.words import words_in


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (" \n\t", 0),
        ("continue", 1),
        ("Go on, please!", 3),
        ("don't touch src/main.py - it's fine", 5),
        ("... !? -", 0),
        ("👍", 0),
        ("non-breaking\u00a0space", 2),
        ("Продолжай работу", 2),
        ("계속 진행해 주세요", 3),
        ("जारी रखें", 2),
        ("متابعة العمل", 2),
        ("继续", 2),
        ("请把登录页面的按钮改成蓝色", 13),
        ("継続して。", 3),
        ("README を更新してください", 6),
        ("ทำต่อ", 1),
        ("ช่วยแก้ไขข้อผิดพลาดในไฟล์นี้", 6),
        ("修复bug后运行tests", 7),
    ],
)
def test_words_are_counted_in_every_writing(text: str, count: int) -> None:
    """Spaces separate words where there are spaces; elsewhere characters count."""
    assert words_in(text) == count

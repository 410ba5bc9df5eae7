"""Takes the pictures of docs/images anew: a server with a planted fortnight, looked at by Chromium.

    make pictures

Times on the pictures are those of the present, so each run changes a little of every picture.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from browser_kit import browsing
from planted_day import serving_a_planted_day
from scenes import IMAGES, MAX_BYTES, SCENES, shoot


def main() -> int:
    """Take them all."""
    IMAGES.mkdir(exist_ok=True)
    too_large = 0
    with (
        TemporaryDirectory() as folder,
        serving_a_planted_day(Path(folder), datetime.now(UTC), markup=False) as server,
        browsing() as browser,
    ):
        for scene in SCENES:
            size = shoot(browser, server.url, scene, IMAGES).stat().st_size
            print(f"docs/images/{scene.name}.png: {size:,} bytes")
            too_large += size > MAX_BYTES
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main())

"""Makes the campaign's modules, and those of the engine's own tests, importable."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "streams" / "support"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

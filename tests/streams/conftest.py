"""Makes the support modules of the engines' tests importable."""

import sys
from pathlib import Path

SUPPORT = str(Path(__file__).with_name("support"))
if SUPPORT not in sys.path:
    sys.path.insert(0, SUPPORT)

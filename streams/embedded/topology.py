"""The local topology under the name that the embedded engine and its tests know; it lives with the folds it runs."""

from __future__ import annotations

from ...projections.local import Load, LocalTopology, LogRecord

__all__ = ["Load", "LocalTopology", "LogRecord"]

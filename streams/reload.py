"""Reloads changed rules while an engine runs: polls the files, and swaps the rules between two batches.

An invalid file changes nothing: the previous rules stay in force, the fault is logged once and reported in the status
until the file is corrected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..config import RuleFiles
from ..rules.rules import RuleSet

log = logging.getLogger(__name__)

LOOK_S = 1.0  # Seconds between two polls of the files; one stat call each


class RulesReloader:
    """Passes changed rules to an engine."""

    def __init__(
        self,
        files: RuleFiles | None,
        rebase: Callable[[RuleSet], None],
        on_fault: Callable[[str | None], None] = lambda _fault: None,
    ) -> None:
        """Watch files (None: no files) for an engine with `rebase`; `on_fault` is called with each `fault`."""
        self._files = files
        self._rebase = rebase
        self._on_fault = on_fault

    @property
    def fault(self) -> str | None:
        """Return why the newest version of the files is not used; None if it is."""
        return self._files.fault if self._files is not None else None

    @property
    def paths(self) -> list[str]:
        """Return the files as they were named."""
        return [str(path) for path in self._files.paths] if self._files is not None else []

    def look(self, *, anyway: bool = False) -> bool:
        """Load the files if they changed, or `anyway`; return whether the engine uses them now."""
        if self._files is None or not (anyway or self._files.changed()):
            return False
        rules = self._files.reload()
        if rules is None:
            log.error("%s; the previous rules stay in force", self._files.fault)
            self._on_fault(self._files.fault)
            return False
        self._rebase(rules)
        self._on_fault(None)
        log.info("rules read again from %s", ", ".join(self.paths))
        return True

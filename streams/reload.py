"""Taking changed rules while an engine runs: a look at the files now and then, and a swap between two batches.

A file that cannot be used changes nothing: the rules read before go on to hold, the log says so once, and whoever asks
for the status hears of it until the file is mended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ..rules.rules import Rules

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks at the files; one stat call each."""


class Files(Protocol):
    """Files of rules; see `config.RuleFiles`."""

    fault: str | None

    @property
    def paths(self) -> Sequence[Path]:
        """Where they are."""

    def changed(self) -> bool:
        """Whether they are others than when they were last read."""

    def reload(self) -> Rules | None:
        """Read them again; None when they cannot be used."""


class Reloader:
    """Hands changed rules to an engine."""

    def __init__(
        self,
        files: Files | None,
        rebase: Callable[[Rules], None],
        on_fault: Callable[[str | None], None] = lambda _fault: None,
    ) -> None:
        """Watch files (None: there are none) for the engine behind `rebase`; `on_fault` hears of each `fault`."""
        self._files = files
        self._rebase = rebase
        self._on_fault = on_fault

    @property
    def fault(self) -> str | None:
        """Why the newest version of the files is not used; None when it is."""
        return self._files.fault if self._files is not None else None

    @property
    def paths(self) -> list[str]:
        """The files, as they were named."""
        return [str(path) for path in self._files.paths] if self._files is not None else []

    def look(self, *, anyway: bool = False) -> bool:
        """Take the files if they have changed, or `anyway`; returns whether the engine goes by them now."""
        if self._files is None or not (anyway or self._files.changed()):
            return False
        rules = self._files.reload()
        if rules is None:
            log.error("%s; the rules read before go on to hold", self._files.fault)
            self._on_fault(self._files.fault)
            return False
        self._rebase(rules)
        self._on_fault(None)
        log.info("rules read again from %s", ", ".join(self.paths))
        return True

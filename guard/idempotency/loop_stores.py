"""A dedupe store on several event loops, whose connections belong to one of them."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from .record import DedupeStore


class LoopStores:
    """Gives each event loop the store over connections of its own."""

    def __init__(self, store: DedupeStore) -> None:
        """Give `store` to the first loop that asks."""
        self._own = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._elsewhere: WeakKeyDictionary[asyncio.AbstractEventLoop, DedupeStore] = WeakKeyDictionary()

    @property
    def here(self) -> DedupeStore:
        """The store of this loop; takes over the store's own connections if their loop is gone."""
        if self._own.in_process:
            return self._own
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return self._own
        if self._loop is not None and self._loop.is_running():
            if loop not in self._elsewhere:
                self._elsewhere[loop] = self._own.on_another_loop()
            return self._elsewhere[loop]
        if self._loop is not None:
            self._own.after_fork()
        self._loop = loop
        return self._own

    async def close_here(self) -> None:
        """Close the connections of this loop, which is about to end."""
        loop = asyncio.get_running_loop()
        store = self._elsewhere.pop(loop, None)
        if self._loop is loop:
            store, self._loop = self._own, None
        if store is not None:
            await store.close()

    def after_fork(self) -> None:
        """Forget the loops of the parent process."""
        self._loop = None
        self._elsewhere.clear()

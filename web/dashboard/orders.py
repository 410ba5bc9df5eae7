"""Orders of an operator, given in a form."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route

from .render import Site


def order_routes(site: Site) -> Sequence[Route]:
    """Path of the form."""
    del site
    return []

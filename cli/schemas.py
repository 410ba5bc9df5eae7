"""`trustfold schemas export`: writes the JSON Schemas and the AsyncAPI document."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from ..errors import ConfigError
from .render import note

PACKAGE = "trustfold.schemas"


@click.group()
def schemas() -> None:
    """Export the JSON Schemas of all events and the AsyncAPI document."""


@schemas.command()
@click.argument("directory", type=click.Path(file_okay=False))
def export(*, directory: str) -> None:
    """Write the schema files into DIRECTORY, which is created if missing."""
    target = Path(directory)
    generated = files(PACKAGE).joinpath("generated")
    found = sorted((one for one in generated.iterdir() if one.is_file()), key=lambda one: one.name)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for one in found:
            (target / one.name).write_bytes(one.read_bytes())
            click.echo(target / one.name)
    except OSError as error:
        raise ConfigError(f"{directory}: cannot be written ({error.strerror}); choose another directory") from error
    note(f"{len(found)} files written")

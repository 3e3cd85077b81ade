"""``mergekit-map schema`` and ``init``; imports nothing heavy."""

from __future__ import annotations

import json

import click

from mergekit_map.cli.options import starting


@click.command()
def schema() -> None:
    """Print the JSON Schema of a configuration, for completion and checks in editors.

    Save it once, and name it in the first line of a configuration:
    # yaml-language-server: $schema=mergekit-map.schema.json

    Example: mergekit-map schema > mergekit-map.schema.json
    """
    with starting():
        from mergekit_map.workflows.init import config_schema, mergekit_is_known

    with starting(None if mergekit_is_known() else "loading mergekit"):
        content = config_schema()
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))

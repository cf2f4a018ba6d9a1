"""Documents for programs, as JSON or YAML: what ``-o`` prints beside tables."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click
import orjson
import yaml

from taint_eviction.cli.visible import json_text


def echo_document(document: Mapping[str, Any], output: str) -> None:
    """Print one document; ``output`` is json or yaml."""
    if output == "json":
        click.echo(json_text(document, orjson.OPT_INDENT_2))
        return
    for text in _yaml(document):
        click.echo(text, nl=False)


def stream_document(document: Mapping[str, Any], output: str) -> None:
    """Print one of several documents: a line of JSON, or YAML after ``---``."""
    if output == "json":
        click.echo(json_text(document))
    else:
        click.echo("---")
        echo_document(document, output)
    sys.stdout.flush()


class _Dumper(yaml.CSafeDumper):
    """Writes what stands at two places twice: few programs that read lines know references."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _yaml(document: Mapping[str, Any]) -> Iterator[str]:
    """Write the items of lists one by one: 30,000 pods at once would take half a gigabyte."""
    for name, value in document.items():
        if isinstance(value, list) and value:
            yield f"{name}:\n"
            yield from (_dumped([item]) for item in value)
        else:
            yield _dumped({name: value})


def _dumped(part: object) -> str:
    return yaml.dump(part, Dumper=_Dumper, sort_keys=False, width=120)

"""Generates values.yaml and the table in the chart's README from the JSON Schema of the values. Pure.

Each value has a description and a default.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

WIDTH: Final = 110
HEAD: Final = "# Generated from values.schema.json by `make renew`. Your own values file needs only what differs.\n"
BEGIN: Final = "<!-- generated: values.schema.json -->\n"
END: Final = "<!-- end of generated -->\n"


def leaves(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the values by their paths (`image.tag`), in the schema's order."""
    for name, field in schema["properties"].items():
        if "properties" in field:
            yield from leaves(field, f"{path}{name}.")
        elif "default" in field:
            yield path + name, field


def values_yaml(schema: Mapping[str, Any]) -> str:
    """Return values.yaml: all values at their defaults, each under its description."""
    return HEAD + "".join(_lines(schema, ""))


def table(schema: Mapping[str, Any]) -> str:
    """Return the table of values in Markdown."""
    rows = (
        f"| `{path}` | `{json.dumps(field['default'])}` | {field['description']} |" for path, field in leaves(schema)
    )
    return "\n".join(("| value | default | description |", "| --- | --- | --- |", *rows)) + "\n"


def with_table(readme: str, schema: Mapping[str, Any]) -> str:
    """Return a README with the current table between its markers."""
    before, _, rest = readme.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(schema)}\n{END}{rest.partition(END)[2]}"


def _lines(schema: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, field in schema["properties"].items():
        if not indent and field.keys() & {"properties", "default"}:
            yield "\n"
        if "properties" in field:
            yield f"{indent}{name}:\n"
            yield from _lines(field, indent + "  ")
        elif "default" in field:
            mark = f"{indent}# "
            yield (
                textwrap.fill(
                    field["description"], WIDTH, initial_indent=mark, subsequent_indent=mark, break_on_hyphens=False
                )
                + "\n"
            )
            yield f"{indent}{name}:{_default(field['default'], indent)}\n"


def _default(value: object, indent: str) -> str:
    """Return the text of a default after its key: on the same line or, for an object with fields, below the key."""
    if not isinstance(value, dict) or not value:
        return f" {json.dumps(value)}"
    return "\n" + textwrap.indent(yaml.safe_dump(value, sort_keys=False), indent + "  ").rstrip("\n")

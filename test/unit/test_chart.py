"""The Helm chart's documents are made of its schema. What helm makes of the chart is in `test/chart`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from hack.chart.__main__ import CHART, documents
from hack.chart.documents import leaves, table, values_yaml
from tfjob_operator.controller.options import parse_options

SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text())


@pytest.mark.parametrize("file", documents(), ids=lambda path: path.name)
def test_what_people_read_of_the_values_is_made_of_their_schema(
    file: Path, check_generated: Callable[[Path, str], None]
) -> None:
    check_generated(file, documents()[file])


def test_a_value_is_documented_with_its_parts_default_and_description() -> None:
    part = {"type": "object", "properties": {"tag": {"description": "Which one", "default": ""}}}
    schema = {"properties": {"image": part, "limits": {"description": "How much", "default": {"cpu": 1}}, "global": {}}}
    assert values_yaml(schema).partition("\n\n")[2] == (
        'image:\n  # Which one\n  tag: ""\n\n# How much\nlimits:\n  cpu: 1\n'
    )
    assert table(schema).splitlines()[2:] == [
        '| `image.tag` | `""` | Which one |',
        '| `limits` | `{"cpu": 1}` | How much |',
    ]


def test_defaults_of_values_are_the_programs_own() -> None:
    """What is at its default is not said to the program."""
    defaults = {path: field["default"] for path, field in leaves(SCHEMA)}
    options = parse_options([], {})
    assert options.election is not None
    assert (defaults["logLevel"], defaults["qps"], defaults["burst"]) == (options.log_level, options.qps, options.burst)
    assert defaults["gangScheduling.schedulerName"] == options.gang_scheduler_name
    assert (tuple(defaults["apis"]), defaults["tensorboardImage"]) == (options.apis, options.tensorboard_image)
    assert tuple(defaults["tensorboardServiceTypes"]) == options.tensorboard_service_types
    election = options.election.times
    assert [defaults[f"leaderElection.{name}"] for name in ("leaseDuration", "renewDeadline", "retryPeriod")] == [
        f"{seconds:g}s" for seconds in (election.lease_duration_s, election.renew_deadline_s, election.retry_period_s)
    ]

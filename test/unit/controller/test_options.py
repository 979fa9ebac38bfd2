"""Flags and environment."""

from __future__ import annotations

import pytest

from controller.options import Options, parse_options


def test_without_flags_the_defaults_hold() -> None:
    """In a pod nothing needs to be said."""
    assert parse_options([], {}) == Options()


def test_flags_and_environment_are_read() -> None:
    """The peers' names; an explicit flag wins over the environment."""
    given = ["--kubeconfig", "f", "--namespace=team", "--threadiness=4", "--json-log-format=false", "--log-level=debug"]
    options = parse_options(given, {"KUBECONFIG": "other", "CUSTOM_CLUSTER_DOMAIN": "cluster.local"})
    assert options == Options("f", None, "team", 4, False, "debug", "cluster.local")
    assert parse_options([], {"KUBECONFIG": "other"}).kubeconfig == "other"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--threadiness", "0"], "argument --threadiness: must be a whole number of at least 1, not '0'"),
        (["--threadiness", "many"], "not 'many'"),
        (["--json-log-format", "maybe"], "must be true or false, not 'maybe'"),
        (["--log-level", "loud"], "invalid choice: 'loud'"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_a_wrong_flag_is_told_and_ends_with_2(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One clear line, exit code 2."""
    with pytest.raises(SystemExit) as ended:
        parse_options(arguments, {})
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err

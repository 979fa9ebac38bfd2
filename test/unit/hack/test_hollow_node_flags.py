"""The flags of `python -m hack.hollow_node`."""

import pytest

from hack.hollow_node.__main__ import flags
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes


def test_the_newest_kubelet_is_played_unless_another_is_asked_for() -> None:
    """Any version from the oldest on can be given, in each notation of versions."""
    parser = flags()
    assert parser.parse_args(["--kubeconfig", "f"]).kubernetes == NEWEST
    for text, version in (("1.20", OLDEST), ("1.27", Kubernetes(27)), ("v1.36.3", NEWEST)):
        assert parser.parse_args(["--kubeconfig", "f", "--kubernetes", text]).kubernetes == version


@pytest.mark.parametrize("text", ["1.19", "1.37", "newest", ""])
def test_a_version_that_nobody_knows_is_refused_with_its_name(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, as for every wrong flag."""
    with pytest.raises(SystemExit) as exit_:
        flags().parse_args(["--kubeconfig", "f", "--kubernetes", text])
    assert exit_.value.code == 2
    assert (text or "''") in capsys.readouterr().err

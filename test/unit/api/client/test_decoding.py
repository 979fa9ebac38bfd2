"""What is read of responses."""

from __future__ import annotations

import pytest

from tfjob_operator.api.client.decoding import version_written


@pytest.mark.parametrize(
    ("response", "version"),
    [
        (
            b'{"kind": "Pod", "metadata": {"name": "a", "resourceVersion": "12", "labels": {"b": "c"}}, "spec": {}}',
            "12",
        ),
        (b'{"metadata": {}}', ""),
        (b"{}", ""),
        (b'{"metadata": null}', ""),
        (b'{"metadata": {"resourceVersion": 12}}', ""),
        (b"<html><body>Welcome</body></html>", ""),
        (b"", ""),
        (b'{"spec": ' + b"[" * 5000 + b"]" * 5000 + b', "metadata": {"resourceVersion": "7"}}', "7"),
    ],
)
def test_the_version_in_the_response_to_a_write_is_read_where_there_is_one(response: bytes, version: str) -> None:
    """EX-10: whatever else comes is no failure of the write."""
    assert version_written(response) == version

"""PluginReader: how long the output of a credential plugin is valid. Its other sides are in test_config, with a real plugin."""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping

import pytest

from fakes.virtual_loop import EPOCH
from tfjob_operator.api.client.auth.credentials import PluginReader
from tfjob_operator.api.client.errors import CredentialsError


@pytest.mark.parametrize(
    ("expires", "fresh_s"),
    [
        (None, math.inf),
        ("2026-01-01T01:00:00Z", 2880.0),
        ("2026-01-01T03:00:00+02:00", 2880.0),
        ("2026-01-01T00:00:10Z", 8.0),
        ("2025-12-31T00:00:00Z", 0.0),
    ],
)
def test_a_plugin_is_asked_again_after_four_fifths_of_what_it_gave(expires: str | None, fresh_s: float) -> None:
    """That is early enough for a failing plugin to recover; without an expiry it runs again only after a 401."""
    status = {"token": "t"} | ({} if expires is None else {"expirationTimestamp": expires})
    assert PluginReader("plugin", lambda: status, None, None, now=lambda: EPOCH)().fresh_s == fresh_s


def test_an_expiry_without_a_time_zone_is_refused() -> None:
    status = {"token": "t", "expirationTimestamp": "2026-01-01T01:00:00"}
    with pytest.raises(CredentialsError, match="credential plugin aws failed: it did not print a valid ExecCredential"):
        PluginReader("aws", lambda: status, None, None)()


def test_what_a_plugin_said_when_it_failed_is_not_in_the_traceback_either() -> None:
    def fail() -> Mapping[str, str]:
        raise ValueError("no JSON: s3cret")

    with pytest.raises(
        CredentialsError, match=r"credential plugin aws failed: it did not print a valid ExecCredential$"
    ) as raised:
        PluginReader("aws", fail, None, None)()
    assert "s3cret" not in "".join(traceback.format_exception(raised.value))

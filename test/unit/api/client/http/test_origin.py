"""Which parts of an address are shown to people."""

from __future__ import annotations

import pytest

from tfjob_operator.api.client import Settings
from tfjob_operator.api.client.http.messages import Origin


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ada:s3cret@api.example:6443/k8s/?token=s3cret#s3cret", "https://api.example:6443/k8s"),
        ("https://s3cret@api.example", "https://api.example"),
        ("http://ada:s3c@ret@[fd00::1]:8080", "http://[fd00::1]:8080"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    """D18: neither user nor password, nor query nor fragment; host and port are what people need."""
    assert str(Origin.of(url)) == shown
    for text in (repr(Origin.of(url)), repr(Settings(url)), repr(Settings("https://api.example", proxy=url))):
        assert "s3c" not in text


@pytest.mark.parametrize(
    "url", ["ada:s3cret@api.example", "https://ada:s3cret@", "https://ada:s3cret@api.example:port"]
)
def test_what_is_no_address_is_not_quoted(url: str) -> None:
    """D18: it may be an address with a typing error, and a password in it."""
    with pytest.raises(ValueError, match="must have the form https://host:port") as raised:
        Origin.of(url)
    assert "s3cret" not in str(raised.value)

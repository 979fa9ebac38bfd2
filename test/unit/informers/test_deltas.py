"""Tombstones, and what is inside them."""

from __future__ import annotations

import pytest

from fakes.source import pod
from tfjob_operator.informers import Tombstone, key_of, object_of


def test_object_and_key_come_out_of_a_tombstone_as_out_of_the_object_itself() -> None:
    """ST-01, ST-02, controller_test.go:TestDeletionHandlingObjectToName, TestDeletedObjectGetKey"""
    gone = pod("a")
    for item in (gone, Tombstone("ns/a", gone)):
        assert object_of(item) is gone
        assert key_of(item) == "ns/a"


def test_the_key_of_what_has_no_namespace_is_its_name() -> None:
    """ST-01, object-names_test.go:TestObjectNames"""
    assert key_of(pod("node-1", "")) == "node-1"


def test_a_cached_object_cannot_be_changed() -> None:
    """ST-03, ST-10, mutation_detector_test.go:TestMutationDetector. Frozen objects make the detector needless"""
    with pytest.raises(AttributeError):
        pod("a").status = pod("b").status  # type: ignore[misc]  # the point of the test

"""Owners and keys of objects."""

from __future__ import annotations

import pytest

from tfjob_operator.api.meta import ObjectMeta, OwnerReference, owner_key

THEIRS, OURS = OwnerReference(name="theirs"), OwnerReference(name="ours", controller=True)


@pytest.mark.parametrize(
    ("namespace", "owners", "key"),
    [("team", (THEIRS, OURS), "team/ours"), ("", (OURS,), "ours"), ("team", (THEIRS,), None), ("team", None, None)],
)
def test_the_key_of_an_owner_is_that_of_the_one_that_manages_the_object(
    namespace: str, owners: tuple[OwnerReference, ...] | None, key: str | None
) -> None:
    """In the object's namespace; other owners only keep it from being collected."""
    assert owner_key(ObjectMeta(name="x", namespace=namespace, owner_references=owners)) == key

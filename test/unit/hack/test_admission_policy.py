"""The admission policy is what the script makes. `test/integration/test_admission_policy.py` compares it with the operator."""

from collections.abc import Callable
from pathlib import Path

from fakes.manifests import read_documents
from hack.admission_policy import FILE, MISTAKES, policy


def test_the_policy_is_what_the_script_makes(check_generated: Callable[[Path, str], None]) -> None:
    check_generated(FILE, policy())


def test_each_example_has_one_mistake_and_no_two_have_the_same() -> None:
    assert len({mistake.words for mistake in MISTAKES}) == len(MISTAKES) == 12


def test_the_policy_blocks_nothing_when_it_fails_and_no_write_of_a_status() -> None:
    """A job's status and scale are subresources, and removing a finalizer does not change its mistakes."""
    policy, binding = read_documents(FILE)
    assert policy["spec"]["failurePolicy"] == "Ignore"
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["tfjobs"], ["CREATE", "UPDATE"])
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}

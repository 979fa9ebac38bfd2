"""The CRD's schema: that it is what the script makes, and that it holds types and nothing else."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from fakes.manifests import read_document
from hack.crd_schema.__main__ import CRD, definitions
from hack.crd_schema.schema import QUANTITY_PATTERN, ROOT, TIME_PATTERN, reduced, spliced, template

if TYPE_CHECKING:
    from collections.abc import Iterator

LAST_APPLIED_LIMIT = 262_144
"""The bytes of all annotations of an object, by apimachinery's TotalAnnotationSizeLimitB."""
TYPES_ONLY = {
    "type", "format", "nullable", "properties", "additionalProperties", "items", "description",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string",
}  # fmt: skip
NO_OTHER_ZERO: dict[str, list[Any]] = {
    "string": [0, False],
    "boolean": ["", 0],
    "integer": ["", False],
    "object": ["", 0, False],
    "array": ["", 0, False],
}
RANGE_OF_INT32 = {"minimum": -(2**31), "maximum": 2**31 - 1}


@pytest.fixture(scope="module")
def crd() -> dict[str, Any]:
    """The manifest."""
    found: dict[str, Any] = read_document(CRD)
    return found


@pytest.fixture(scope="module")
def spec(crd: dict[str, Any]) -> dict[str, Any]:
    """The schema of a TFJob's spec."""
    found: dict[str, Any] = schema_of(crd)["spec"]
    return found


def schema_of(crd: dict[str, Any]) -> dict[str, Any]:
    """What a TFJob consists of."""
    found: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return found


def nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema, with where it stands."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


def is_quantity(schema: dict[str, Any]) -> bool:
    """Whether this is the schema of a quantity: it alone has a pattern and no type."""
    return "pattern" in schema and "type" not in schema


def test_the_manifest_is_what_the_script_makes() -> None:
    """Put there by `python -m hack.crd_schema`."""
    assert CRD.read_text() == spliced(CRD.read_text(), definitions())


def test_a_manifest_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no lines '# made by"):
        spliced("kind: CustomResourceDefinition\n", definitions())


def test_kubectl_apply_can_carry_the_manifest_in_an_annotation(crd: dict[str, Any]) -> None:
    """Without --server-side it writes all of it into one, and docs/install.md tells how large that is."""
    size = len(json.dumps(crd, separators=(",", ":")).encode())
    page = (CRD.parents[2] / "docs" / "install.md").read_text()
    told = re.search(r"(\d+),000 of the 262,144 bytes", page)
    assert told
    assert abs(int(told[1]) * 1000 - size) < 2000, size
    assert size < LAST_APPLIED_LIMIT * 3 / 4


def test_every_object_keeps_what_it_does_not_know(spec: dict[str, Any]) -> None:
    """U6: a pruned field would be gone before anybody could warn of it, and a pod of a newer Kubernetes would lose its own."""
    for path, schema in nodes(spec, "spec"):
        if schema.get("type") == "object":
            is_map = "additionalProperties" in schema
            assert is_map != schema.get("x-kubernetes-preserve-unknown-fields", False), path


def test_nothing_is_required_and_null_is_taken_everywhere(spec: dict[str, Any]) -> None:
    """Go takes null for any type, and its own tools write `creationTimestamp: null`."""
    for path, schema in nodes(spec, "spec"):
        assert schema["nullable"], path
        assert "required" not in schema, path
        assert "enum" not in schema, path
        assert "default" not in schema, path


def test_the_only_limits_are_those_of_the_types(spec: dict[str, Any]) -> None:
    """A bound of ours would refuse with the API server's words what the operator tells in its own."""
    for path, schema in nodes(spec, "spec"):
        if is_quantity(schema):
            assert schema["pattern"] == QUANTITY_PATTERN, path
            continue
        if path.endswith(".fieldsV1"):  # anything
            continue
        more = {key: value for key, value in schema.items() if key not in {*TYPES_ONLY, "not"}}
        # 1.20 takes them for null: "" for a number, 0 for a string.
        zeros: list[Any] = NO_OTHER_ZERO.get(schema.get("type", ""), [False])
        if schema.get("format") == "date-time":
            zeros = [*zeros, []]
        assert schema["not"] == {"enum": zeros}, path
        if schema.get("format") == "int32":
            assert more == RANGE_OF_INT32, path
        elif schema.get("x-kubernetes-int-or-string"):
            assert more == {**RANGE_OF_INT32, "anyOf": [{"type": "integer"}, {"type": "string"}]}, path
        elif schema.get("format") == "date-time":
            assert more == {"pattern": TIME_PATTERN, "maxItems": 0}, path
        else:
            assert more == {}, path


def test_every_field_of_tfjob_itself_is_described_and_none_of_the_template(spec: dict[str, Any]) -> None:
    """U6: `kubectl explain` helps; the words about pods are with `kubectl explain pod`."""
    for path, schema in nodes(spec, "spec"):
        if ".template." in path:
            assert "description" not in schema, path
        elif not path.endswith("minResources[]"):
            assert schema["description"], path


def test_old_kubectls_are_told_all_fields_in_one_description(spec: dict[str, Any]) -> None:
    """U6: `kubectl explain` before 1.27 reads OpenAPI v2, in which a schema that keeps unknown fields has no properties."""
    told = set(re.findall(r"\w+", spec["description"]))
    inline = {"cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"}
    assert spec["properties"].keys() | spec["properties"]["runPolicy"]["properties"].keys() | inline <= told


def test_a_status_takes_unknown_fields_at_every_level(crd: dict[str, Any]) -> None:
    """U10b: a document that shows a status of another operator can be created again."""
    for path, schema in nodes(schema_of(crd)["status"], "status"):
        if schema["type"] == "object" and "additionalProperties" not in schema:
            assert schema["x-kubernetes-preserve-unknown-fields"], path


def test_a_reduced_document_has_what_a_pod_template_needs_and_no_words() -> None:
    meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    document = {
        "definitions": {
            ROOT: {"properties": {"metadata": {"$ref": f"#/definitions/{meta}", "description": "words"}}},
            meta: {"properties": {"labels": {"type": "object", "additionalProperties": {"type": "string"}}}},
            "io.k8s.api.core.v1.Node": {"properties": {}},
        }
    }
    found = reduced(document)
    assert found == {
        ROOT: {"metadata": {"$ref": f"#/definitions/{meta}"}},
        meta: {"labels": {"type": "object", "additionalProperties": {"type": "string"}}},
    }
    assert reduced({"definitions": {name: {"properties": fields} for name, fields in found.items()}}) == found
    labels = template(found)["properties"]["metadata"]["properties"]["labels"]
    assert labels["additionalProperties"] == {"type": "string", "nullable": True, "not": {"enum": [0, False]}}


@pytest.mark.parametrize(
    "text", ["1", "0.5", ".5", "1.", "+1Ki", "-3m", "1e5", "1E5", "1E", "1e-3", " 1 ", "00", "1E+999"]
)
def test_a_quantity_that_go_parses_fits_the_pattern(text: str) -> None:
    assert re.fullmatch(QUANTITY_PATTERN, text)


@pytest.mark.parametrize(
    "text", ["", "abc", "1e1.5", "1kk", "1e", "1Kii", "--1", ".", "1e9999", "0x1", "1_0", "\u0661"]
)
def test_what_go_does_not_parse_as_a_quantity_does_not_fit(text: str) -> None:
    """The last but two would be parsed, and then cost minutes: a number of ten thousand digits is made of it."""
    assert not re.fullmatch(QUANTITY_PATTERN, text)

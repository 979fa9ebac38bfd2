"""The CRD: it is what the script generates, restricts nothing but types, and has the same types in every version."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import manifests
from hack.crd_schema.__main__ import CRD, definitions, generated
from hack.crd_schema.schema import QUANTITY_PATTERN, ROOT, TIME_PATTERN, reduced, template
from hack.crd_schema.versions import OLDER

LAST_APPLIED_LIMIT = 262_144
"""The most bytes of all annotations of an object, by apimachinery's TotalAnnotationSizeLimitB."""
ETCD_LIMIT = 1_572_864
"""The most bytes of one request to etcd, by its flag --max-request-bytes."""
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
    return manifests.crd()


@pytest.fixture(scope="module")
def schemas(crd: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every schema in that of a TFJob's spec in v1, with its path."""
    return [*nodes(schema_of(crd["spec"]["versions"][0])["spec"], "spec")]


def schema_of(version: dict[str, Any]) -> dict[str, Any]:
    """The schemas of the top-level fields of a TFJob of this version."""
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]
    return found


def nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


def test_the_manifest_is_what_the_script_makes(check_generated: Callable[[Path, str], None]) -> None:
    """The pod template's schema, and the older versions."""
    check_generated(CRD, generated(CRD.read_text(), definitions()))


def test_a_manifest_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no lines '# made by"):
        generated("kind: CustomResourceDefinition\n", definitions())


def test_etcd_can_hold_the_manifest_and_an_annotation_can_not(crd: dict[str, Any]) -> None:
    """So `kubectl apply` needs --server-side, as docs/install.md tells."""
    size = len(json.dumps(crd, separators=(",", ":")).encode())
    assert LAST_APPLIED_LIMIT < size < ETCD_LIMIT / 2


def test_one_version_is_stored_all_are_served_and_nothing_converts_them(crd: dict[str, Any]) -> None:
    """A conversion webhook that is unavailable would stop the garbage collection of a whole cluster."""
    versions = crd["spec"]["versions"]
    assert [version["name"] for version in versions] == ["v1", *(version.name for version in OLDER)]
    assert [version["name"] for version in versions if version["storage"]] == ["v1"]
    assert all(version["served"] for version in versions)
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert crd["spec"]["preserveUnknownFields"] is False


def test_every_version_lets_in_what_all_others_do(crd: dict[str, Any]) -> None:
    """An object written in one version must be writable in any other, and decodable by readers of each."""
    v1, *older = (without_words(version) for version in crd["spec"]["versions"])
    for version in older:
        assert version["subresources"] == v1["subresources"]
        assert version["schema"] == v1["schema"]


def without_words(value: Any) -> Any:
    """The schema without descriptions."""
    if isinstance(value, dict):
        return {
            key: without_words(inner)
            for key, inner in value.items()
            if key != "description" or not isinstance(inner, str)
        }
    return value


def test_each_version_has_the_columns_and_tells_the_fields_of_its_time(crd: dict[str, Any]) -> None:
    """v1alpha2 had only the age, which kubectl shows if there are no columns."""
    for version, manifest in zip(OLDER, crd["spec"]["versions"][1:], strict=True):
        columns = [column["name"] for column in manifest.get("additionalPrinterColumns", [])]
        told = schema_of(manifest)["spec"]["description"]
        if version.name == "v1alpha1":
            assert columns == ["Kind", "State", "Age"]
            assert {"replicaSpecs", "tfReplicaType", "terminationPolicy", "RuntimeId"} <= set(re.findall(r"\w+", told))
            continue
        assert columns == ([] if version.name == "v1alpha2" else ["State", "Age"])
        assert {"tfReplicaSpecs", "cleanPodPolicy", "ttlSecondsAfterFinished"} <= set(re.findall(r"\w+", told))
        assert ("activeDeadlineSeconds" in told) == (version.name == "v1beta2")
        assert "runPolicy" not in told


def test_every_object_keeps_what_it_does_not_know(schemas: list[tuple[str, dict[str, Any]]]) -> None:
    """U6: nobody could warn of a pruned field, and pods would lose fields of newer Kubernetes versions."""
    for path, schema in schemas:
        if schema.get("type") == "object":
            is_map = "additionalProperties" in schema
            assert is_map != schema.get("x-kubernetes-preserve-unknown-fields", False), path


def test_nothing_is_required_and_null_is_taken_everywhere(schemas: list[tuple[str, dict[str, Any]]]) -> None:
    """Go accepts null for any type, and its tools write `creationTimestamp: null`.

    API servers drop null fields of templates, so those need not be nullable; the scale subresource takes no null as replicas.
    """
    for path, schema in schemas:
        is_field = ".template." in path and not path.endswith("[]")
        assert is_field or bool(schema.get("nullable")) != path.endswith("].replicas"), path
        assert not {"required", "enum", "default"} & schema.keys(), path


def test_the_only_limits_are_those_of_the_types(schemas: list[tuple[str, dict[str, Any]]]) -> None:
    """With further limits the API server would refuse specifications for which the operator has better messages."""
    for path, schema in schemas:
        if "pattern" in schema and "type" not in schema:  # a quantity
            assert schema["pattern"] == QUANTITY_PATTERN, path
            continue
        if path.endswith(".fieldsV1"):  # anything
            continue
        more = {key: value for key, value in schema.items() if key not in {*TYPES_ONLY, "not"}}
        # 1.20 takes zero values of other types for null: "" for a number, 0 for a string.
        zeros: list[Any] = NO_OTHER_ZERO.get(schema.get("type", ""), [False])
        if schema.get("format") == "date-time":
            zeros = [*zeros, []]
        assert schema.get("not") == ({"enum": zeros} if schema.get("nullable") else None), path
        if schema.get("format") == "int32":
            assert more == RANGE_OF_INT32, path
        elif schema.get("x-kubernetes-int-or-string"):
            assert more == {**RANGE_OF_INT32, "anyOf": [{"type": "integer"}, {"type": "string"}]}, path
        elif schema.get("format") == "date-time":
            assert more == {"pattern": TIME_PATTERN, "maxItems": 0}, path
        else:
            assert more == {}, path


def test_every_field_of_tfjob_itself_is_described_and_none_of_the_template(
    schemas: list[tuple[str, dict[str, Any]]],
) -> None:
    """U6: for `kubectl explain`; `kubectl explain pod` describes the fields of pods."""
    for path, schema in schemas:
        if ".template." in path:
            assert "description" not in schema, path
        elif not path.endswith("minResources[]"):
            assert schema["description"], path


def test_old_kubectls_show_all_fields_in_one_description(schemas: list[tuple[str, dict[str, Any]]]) -> None:
    """U6: `kubectl explain` before 1.27 reads OpenAPI v2, in which a schema that keeps unknown fields has no properties."""
    spec = schemas[0][1]
    told = set(re.findall(r"\w+", spec["description"]))
    inline = {"cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"}
    assert spec["properties"].keys() | spec["properties"]["runPolicy"]["properties"].keys() | inline <= told


def test_a_status_takes_unknown_fields_at_every_level(crd: dict[str, Any]) -> None:
    """U10b: a document that shows a status of another operator can be created again."""
    for path, schema in nodes(schema_of(crd["spec"]["versions"][0])["status"], "status"):
        if schema["type"] == "object" and "additionalProperties" not in schema:
            assert schema["x-kubernetes-preserve-unknown-fields"], path


def test_a_reduced_document_has_what_a_pod_template_needs_and_no_words() -> None:
    """Quantities are not looked up: their schema is ours."""
    meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    reference = {"$ref": f"#/definitions/{meta}"}
    fields = {
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "size": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity"},
    }
    document = {
        ROOT: {"properties": {"metadata": reference | {"description": "words"}}},
        meta: {"properties": fields},
        "io.k8s.api.core.v1.Node": {"properties": {}},
    }
    found = reduced({"definitions": document})
    assert found == {ROOT: {"metadata": reference}, meta: fields}
    assert reduced({"definitions": {name: {"properties": fields} for name, fields in found.items()}}) == found
    labels = template(found)["properties"]["metadata"]["properties"]["labels"]
    assert labels["additionalProperties"] == {"type": "string", "nullable": True, "not": {"enum": [0, False]}}
    assert "nullable" not in labels


def test_a_quantity_that_go_parses_fits_the_pattern_and_nothing_else() -> None:
    """Go would parse 1e9999, but compute a number of ten thousand digits from it, which takes minutes."""
    good = ["1", "0.5", ".5", "1.", "+1Ki", "-3m", "1e5", "1E5", "1E", "1e-3", " 1 ", "00", "1E+999"]
    bad = ["", "abc", "1e1.5", "1kk", "1e", "1Kii", "--1", ".", "1e9999", "0x1", "1_0", "\u0661"]
    assert [text for text in good + bad if re.fullmatch(QUANTITY_PATTERN, text)] == good

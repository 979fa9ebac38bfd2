"""Generates parts of manifests/base/crd.yaml: the pod template's schema in v1, and all older versions.

The schema comes from openapi.json, a copy of the relevant part of an API server's OpenAPI document. To renew the copy, save the
output of `kubectl get --raw /openapi/v2` from the newest Kubernetes, run `python -m hack.crd_schema FILE`, then `make renew`.
"""

import json
import sys
from pathlib import Path
from typing import Final

from hack.crd_schema import schema, versions
from hack.crd_schema.schema import Definitions, reduced, spliced, template, written
from hack.yaml_text import document

CRD: Final = Path(__file__).parents[2] / "manifests" / "base" / "crd.yaml"
COPY: Final = Path(__file__).parent / "openapi.json"


def definitions() -> Definitions:
    """Return the definitions of the copy."""
    found: Definitions = json.loads(COPY.read_text())
    return found


def generated(manifest: str, found: Definitions) -> str:
    """Return the CRD manifest with its generated parts renewed. Raises ValueError if a marker is missing."""
    manifest = spliced(manifest, schema.BEGIN, lambda indent: written(template(found), indent))
    (v1,) = document(manifest.partition(versions.BEGIN)[0])["spec"]["versions"]
    return spliced(manifest, versions.BEGIN, lambda indent: versions.older(v1, indent))


def main() -> None:
    """Renew the copy."""
    copy = reduced(json.loads(Path(sys.argv[1]).read_text()))
    lines = (f"{json.dumps(name)}: {json.dumps(fields, sort_keys=True)}" for name, fields in copy.items())
    COPY.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

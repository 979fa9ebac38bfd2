"""What is known to differ, by check: something that an old client or server lacks, or that we have not fixed yet.

A row that is no longer true fails the matrix. docs/compatibility.md says the same to users.
"""

from __future__ import annotations

from typing import Final

from hack.matrix.report import Difference

KUBECTL: Final = (
    Difference(
        "explain, single fields",
        "missing in the output",
        "this API server's OpenAPI v2 leaves out fields of what keeps unknown ones, and v3 is served from 1.24 on",
        servers=range(24),
    ),
    Difference(
        "explain, single fields",
        "missing in the output",
        "kubectl reads OpenAPI v3 from 1.27 on",
        clients=frozenset({"kubectl 1.22", "kubectl 1.26"}),
    ),
    Difference(
        "wait --for=jsonpath",
        "unrecognized condition",
        "kubectl has it from 1.23 on",
        clients=frozenset({"kubectl 1.22"}),
    ),
    *(
        Difference(
            f"apply -k addons/flow-control-{version}",
            "no matches for kind",
            f"this API server does not serve flowcontrol.apiserver.k8s.io/{version} (docs/install.md: which addon for which)",
            servers=servers,
        )
        for version, servers in (
            ("v1beta1", range(26, 100)),
            ("v1beta2", range(23)),
            ("v1beta2", range(29, 100)),
            ("v1", range(29)),
        )
    ),
)

SDK: Final = (
    Difference(
        "create from a function",
        "has no attribute 'V1RunPolicy'",
        "the SDK's own mistake: it names a model that it does not have, before anything is sent; 1.8 mended it",
        clients=frozenset({"kubeflow-training 1.7.0"}),
    ),
)

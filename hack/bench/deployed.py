"""`python -m hack.bench.deployed FOLDER [flag ...]`: the operator as in its pod, the account's files from a folder.

Only root could put them where a pod finds them. What else makes the process small are the variables of the image
(`hack.image.build.SETTINGS`); a kubeconfig would add the package that reads it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hack.control_plane import ControlPlane
from tfjob_operator.api import access

ROOT: Final = Path(__file__).parents[2]
NAMESPACE: Final = "kubeflow"
ACCOUNT: Final = "tf-job-operator"
RIGHTS: Final = (
    "manifests/base/service-account.yaml",
    "manifests/base/lease-role.yaml",
    "manifests/base/deployment-role.yaml",
    "manifests/cluster-wide/role.yaml",
)


def prepare(plane: ControlPlane, folder: Path) -> dict[str, str]:
    """Install the operator's account and rights, write its files to `folder`, return the variables that a kubelet sets."""
    plane.create_namespace(NAMESPACE)
    for file in RIGHTS:
        plane.run_kubectl("apply", "--namespace", NAMESPACE, "-f", str(ROOT / file))
    folder.mkdir()
    (folder / "ca.crt").write_bytes((plane.directory / "pki" / "ca.crt").read_bytes())
    (folder / "token").write_text(plane.request_token(NAMESPACE, ACCOUNT))
    address = urlsplit(plane.server)
    return {
        access.SERVICE_HOST: address.hostname or "",
        access.SERVICE_PORT: str(address.port),
        "KUBEFLOW_NAMESPACE": NAMESPACE,
    }


if __name__ == "__main__":
    from tfjob_operator.controller.__main__ import main

    access.SERVICE_ACCOUNT = Path(sys.argv.pop(1))  # type: ignore[misc]
    sys.exit(main())

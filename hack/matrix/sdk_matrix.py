"""The lives of a job by each SDK, all at once, each in a namespace of its own of one control plane, where its user may edit."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Final

from hack.matrix import sdks
from hack.matrix.cluster import MANIFESTS, at_work, control_plane
from hack.matrix.report import Report
from hack.matrix.sdks import Sdk

ACCOUNT: Final = "notebook"


def run(chosen: Sequence[Sdk], report: Report) -> None:
    """Run the programs of these SDKs, except those that are too old for this Python.

    Raises FetchError before any of them when one cannot be had, and ControlPlaneError.
    """
    left_out = [sdk for sdk in chosen if not sdk.runs_on(sys.version_info[:2])]
    for sdk in left_out:
        report.leave_out(sdk.client, f"needs {sdk.needs}")
    pythons = {sdk: sdks.python_of(sdk) for sdk in chosen if sdk not in left_out}
    if not pythons:
        return
    with control_plane("sdks") as (plane, server):
        plane.run_kubectl("apply", "--server-side", "-k", str(MANIFESTS / "overlays" / "standalone"))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        with at_work(plane), contextlib.ExitStack() as stack:
            programs = []
            for sdk, python in pythons.items():
                namespace = f"sdk-{sdk.package}-{sdk.version.replace('.', '-')}"
                plane.create_namespace(namespace)
                # As docs/notebook.md says.
                binding = ("create", "rolebinding", "notebook", "--clusterrole=edit", f"--user={ACCOUNT}")
                plane.run_kubectl("-n", namespace, *binding)
                log = plane.directory / "logs" / f"{namespace}.log"
                kubeconfig = plane.kubeconfig_for(ACCOUNT)
                programs.append(stack.enter_context(sdks.started(sdk, python, kubeconfig, namespace, log)))
            for program in programs:
                for result in sdks.results_of(program):
                    report.add(result, server)

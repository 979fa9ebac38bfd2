"""`kubectl tfjob version`."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.options import print_value, target_options
from tfjob_operator.cli.printing import echo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfjob_operator.cli.operators import TrainingOperator
    from tfjob_operator.cli.session import Session
    from tfjob_operator.cli.target import Target

UNKNOWN: Final = "unknown (no permission)"
LEASE: Final = "tf-operator"
"""The name of the operator's Lease, in any namespace."""
BINDING: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/tf-job-operator"
BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
PEER_BINDING: Final = f"{BINDINGS}/training-operator"
NAMESPACES: Final = "/api/v1/namespaces"


@click.command("version")
@click.option("--client", is_flag=True, help="Print only the version of the plugin, without using a cluster.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print it for a program.")
@target_options
def command(target: Target, client: bool, output: str | None) -> None:  # noqa: FBT001 - a flag of the command line
    """Print the versions of this plugin, the cluster, the TFJob APIs that it serves, and the operator.

    A training-operator is named too. An operator without a Deployment is found by its Lease. Versions that you have no
    permission to read are unknown. Without permission for all namespaces, the operator is looked for in the current one. A
    Deployment or Lease of a namespace that the ClusterRoleBinding tf-job-operator does not name claims to be the operator's;
    everybody can create one in their namespace.
    """
    from importlib.metadata import version

    found: dict[str, Any] = {"kubectl-tfjob": version("tfjob-operator")}
    if not client:
        with target.session() as session:
            in_cluster = _of_cluster(session)
        first = {"warning": in_cluster.pop("warning")} if "warning" in in_cluster else {}
        found = first | found | in_cluster
    if output is not None:
        print_value(found, output)
        return
    width = max(14, *map(len, found))
    for name, value in found.items():
        echo(f"{name:{width}} {value if isinstance(value, str) else ', '.join(value)}")


def _of_cluster(session: Session) -> dict[str, Any]:
    cluster = session.get_if_allowed("/version")
    found: dict[str, Any] = {"Kubernetes": UNKNOWN if cluster is None else str(cluster.get("gitVersion", ""))}
    for group in ("kubeflow.org", "tensorflow.org"):
        served = session.get_if_allowed(f"/apis/{group}")
        listed = (served or {}).get("versions")
        found_here = listed if isinstance(listed, list) else ()
        versions = [str(each.get("version")) for each in found_here if isinstance(each, dict)]
        versions = [each for each in versions if _serves_tfjobs(session, group, each)]
        if versions or group == "kubeflow.org":
            found[group] = versions or (UNKNOWN if served is None else "not served: the CRD is not installed")
    found["operator"] = _operator(session)
    if peers := _peers(session):
        found["training-operator"] = "; ".join(_training_operators(session, peers))
        if conflict := _rivalry(session, peers):
            return {"warning": conflict} | found
    return found


def _serves_tfjobs(session: Session, group: str, version: str) -> bool:
    """Return False for a version that has only jobs of other kinds, such as PyTorchJobs."""
    served = session.get_if_allowed(f"/apis/{group}/{version}")
    resources = served.get("resources") if served is not None else None
    return not isinstance(resources, list) or any(
        isinstance(each, dict) and each.get("name") == "tfjobs" for each in resources
    )


def _peers(session: Session) -> list[TrainingOperator]:
    """Return the Deployments of training-operator, which this operator replaces."""
    from tfjob_operator.cli.operators import SELECTOR, read_deployment

    return [*map(read_deployment, _listed(session, "/apis/apps/v1", "deployments", labelSelector=SELECTOR) or ())]


def _rivalry(session: Session, peers: Sequence[TrainingOperator]) -> str:
    """Return which two operators serve the same jobs, "" if none do. What only claims to be an operator does not count."""
    from tfjob_operator.cli.installations import SELECTOR, installations
    from tfjob_operator.cli.model.facts import listed
    from tfjob_operator.cli.operators import MOVED, ClusterState, is_proven, rivalry

    def read(path: str, **query: str) -> Sequence[Mapping[str, Any]] | None:
        found = session.get_if_allowed(path, **query)
        return None if found is None else listed(found.get("items"))

    own = installations(_listed(session, "/apis/apps/v1", "deployments", labelSelector=SELECTOR) or ())
    bindings, proven = read(BINDINGS), _proven(session, BINDING)
    moved = [each["metadata"]["name"] for each in read(NAMESPACES, labelSelector=MOVED) or ()]
    cluster = ClusterState(None, None, moved=moved, bindings=bindings)
    return rivalry(
        cluster._replace(
            deployments=[peer.found for peer in peers if is_proven(cluster, peer)],
            installed=[each for each in own if bindings is None or each.namespace in proven | {each.served}],
        )
    )


def _training_operators(session: Session, peers: Sequence[TrainingOperator]) -> Iterator[str]:
    """Yield the images of training-operators."""
    proven = _proven(session, PEER_BINDING)
    for operator in peers:
        more = "" if operator.may_serve_tfjobs else ", does not serve TFJobs"
        more += f", serves {_word(operator.only)} only" if operator.only else ""
        claim = _claim(operator.namespace, proven, "training-operator")
        where = f"{claim}Deployment {operator}, {operator.ready} of {operator.replicas} ready{more}"
        yield f"{_word(operator.image) if operator.image else 'unknown image'} ({where})"


def _operator(session: Session) -> str:
    """Return the images of the operator's Deployments or, if there are none, the holder of its Lease."""
    label = "app.kubernetes.io/name=tfjob-operator,app.kubernetes.io/component!=page"
    deployments = _listed(session, "/apis/apps/v1", "deployments", labelSelector=label)
    proven = _proven(session, BINDING)
    if deployments:
        return "; ".join(_images(session, deployments, proven))
    leases = _listed(session, "/apis/coordination.k8s.io/v1", "leases", fieldSelector=f"metadata.name={LEASE}")
    held = "; ".join(_holders(leases or [], proven))
    unknown = deployments is None or leases is None
    return held or (UNKNOWN if unknown else f"not found: no Deployment and no Lease {LEASE}")


def _listed(session: Session, api: str, plural: str, **query: str) -> list[dict[str, Any]] | None:
    """Return the objects of all namespaces or, if that is forbidden, of this namespace; None if this namespace has none."""
    found = session.get_if_allowed(f"{api}/{plural}", **query)
    if found is not None:
        return found.get("items") or []
    return (session.get_if_allowed(f"{api}/namespaces/{session.namespace}/{plural}", **query) or {}).get(
        "items"
    ) or None


def _proven(session: Session, binding: str) -> set[str]:
    """Return in which namespaces an operator of the whole cluster runs: only cluster administrators write its binding."""
    found = session.get_if_allowed(binding) or {}
    return {str(subject.get("namespace")) for subject in found.get("subjects") or ()}


def _word(text: str) -> str:
    """Return an image or a name, in quotes if it could be mistaken for other output."""
    return text if re.fullmatch(r"[\w./:@-]+", text, re.ASCII) else json.dumps(text)


def _claim(namespace: str, proven: set[str], what: str = "the operator") -> str:
    return "" if namespace in proven else f"claims to be {what}: "


def _images(session: Session, items: list[dict[str, Any]], proven: set[str]) -> Iterator[str]:
    import msgspec

    from tfjob_operator.cli.model.facts import listed, mapping, pod_facts, text
    from tfjob_operator.cli.model.objects import OperatorDeployment

    for item in items:
        try:
            operator = msgspec.convert(item, OperatorDeployment)
            image = _word((operator.spec.template.spec.containers or ())[0].image)
        except (msgspec.ValidationError, IndexError) as error:
            raise CliError("the server sent a Deployment without containers") from error
        meta, status, wanted = operator.metadata, operator.status, operator.spec.replicas
        more = f", serves {_word(operator.served)} only" if operator.served else ""
        is_stuck = status.updated_replicas < max(wanted, status.replicas)  # until then pods of the old template remain
        if is_stuck and status.ready_replicas:
            path = f"/api/v1/namespaces/{meta.namespace}/pods"
            pods = session.get_if_allowed(path, labelSelector="name=tf-job-operator") or {}
            ready = [pod for pod in pods.get("items") or [] if pod_facts(pod).ready]
            more += f"; update to {image} is not ready: {status.updated_replicas} of {wanted} updated"
            containers = [listed(mapping(pod.get("spec")).get("containers"))[:1] for pod in ready]
            image = ", ".join(sorted({_word(text(each.get("image"))) for first in containers for each in first}))
        counts = f"{status.ready_replicas} of {wanted} ready{more}"
        claim = _claim(meta.namespace, proven | {operator.served})  # whoever owns a namespace decides who serves it
        yield f"{image or 'unknown image'} ({claim}Deployment {meta.namespace}/{meta.name}, {counts})"


def _holders(items: list[dict[str, Any]], proven: set[str]) -> Iterator[str]:
    now = datetime.now(UTC)
    for item in items:
        spec, meta = item.get("spec") or {}, item["metadata"]
        try:
            renewed = datetime.fromisoformat(spec["renewTime"])
            held = timedelta(seconds=spec["leaseDurationSeconds"])
        except (KeyError, TypeError, ValueError):
            continue
        claim, at = _claim(meta["namespace"], proven), duration((now - renewed).total_seconds())
        where = f"{claim}Lease {meta['namespace']}/{meta['name']}, renewed {at} ago"
        is_held = bool(spec.get("holderIdentity")) and renewed + held > now
        yield f"{_word(spec['holderIdentity'])} ({where})" if is_held else f"not running ({where})"

"""Claims without a volume, and volumes that cannot be attached or mounted. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.cli.diagnosis.causes import Finding, Severity, Trouble
from tfjob_operator.cli.diagnosis.facts import latest
from tfjob_operator.cli.diagnosis.pods import condition_of
from tfjob_operator.cli.diagnosis.rules import first_match, rule, value
from tfjob_operator.cli.diagnosis.words import named, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.cli.diagnosis.facts import Facts
    from tfjob_operator.cli.diagnosis.objects import Claim, Pod


def _storage(id_: str, rank: int, title: str, to_do: tuple[str, ...], meaning: str) -> Trouble:
    return Trouble(id_, rank, Severity.ERROR, title, to_do, meaning)


_CLAIM: Final = "kubectl -n {namespace} describe pvc {claim}"
_POD: Final = "kubectl -n {namespace} describe pod {pod}"
CLAIM_MISSING: Final = _storage(
    "claim-missing",
    480,
    "{who} wants a PersistentVolumeClaim that does not exist: {claim}",
    ("kubectl -n {namespace} get pvc   # create {claim}, or name another one in the template",),
    "The template names a PersistentVolumeClaim that does not exist",
)
CLASS_MISSING: Final = _storage(
    "storage-class-missing",
    481,
    "The claim {claim} of {who} names a storage class that does not exist: {name}",
    ("kubectl get storageclasses   # and create the claim anew with one of them", _CLAIM),
    "The claim's storageClassName does not exist",
)
NO_CLASS: Final = _storage(
    "claim-without-class",
    482,
    "The claim {claim} of {who} finds no volume: it names no storage class, and no volume fits",
    ("kubectl get storageclasses,pv", "Create the claim anew with a storageClassName, or a volume that fits it"),
    "No class, no default class, and no volume that fits",
)
PROVISIONING: Final = _storage(
    "provisioning-failed",
    483,
    "No volume can be made for the claim {claim} of {who}",
    (_CLAIM, "Do what the provisioner's message says"),
    "The storage provisioner reports a failure",
)
CLAIM_LOST: Final = _storage(
    "claim-lost",
    484,
    "The claim {claim} of {who} has lost its volume",
    (_CLAIM, "Its data are gone with the volume: create claim and volume anew"),
    "The claim's phase is Lost",
)
CLAIM_PENDING: Final = _storage(
    "claim-pending",
    485,
    "The claim {claim} of {who} is not bound to a volume yet",
    (_CLAIM, "Does the provisioner of its storage class run? kubectl get storageclasses"),
    "The claim is Pending, and nothing says why",
)
MULTI_ATTACH: Final = _storage(
    "volume-in-use",
    486,
    "A volume of {who} is attached to another node, and can only be on one at a time",
    (
        "Use a claim with ReadWriteMany, or one claim for each replica",
        "Is an old pod still there? kubectl -n {namespace} get pods --output=wide",
    ),
    "Multi-Attach: a ReadWriteOnce volume is wanted on two nodes",
)
CONFIG_VOLUME: Final = _storage(
    "config-map-volume-missing",
    487,
    "{who} mounts a ConfigMap that does not exist: {name}",
    ("kubectl -n {namespace} create configmap {name} --from-file=...", "The pod starts by itself when it is there"),
    "A volume is of a ConfigMap that does not exist",
)
SECRET_VOLUME: Final = _storage(
    "secret-volume-missing",
    488,
    "{who} mounts a Secret that does not exist: {name}",
    (
        "kubectl -n {namespace} create secret generic {name} --from-literal=KEY=...",
        "The pod starts by itself when it is there",
    ),
    "A volume is of a Secret that does not exist",
)
KEY_VOLUME: Final = _storage(
    "volume-key-missing",
    489,
    "{who} mounts a key that its ConfigMap or Secret does not have: {name}",
    ("kubectl -n {namespace} get configmaps,secrets -o yaml   # add the key, or correct the template",),
    "A volume names a key that does not exist",
)
DRIVER_MISSING: Final = _storage(
    "csi-driver-missing",
    490,
    "The node of {who} has no CSI driver {name}",
    ("kubectl get csinodes -o yaml   # the driver's DaemonSet has to run on the node", _POD),
    "The CSI driver of a volume is not registered on the node",
)
MOUNT_RIGHTS: Final = _storage(
    "mount-refused",
    491,
    "The storage server refuses the mount of a volume of {who}",
    (_POD, "Does the server export the path to the nodes? Are its credentials right?"),
    "NFS or another server answers a mount with access denied",
)
HOST_PATH: Final = _storage(
    "host-path-missing",
    492,
    "A hostPath of {who} is not there on its node, or of another type",
    (_POD, "Correct path and type, or bind the pod to nodes that have it"),
    "hostPath type check failed",
)
MOUNT_FAILED: Final = _storage(
    "mount-failed",
    493,
    "A volume of {who} cannot be attached or mounted: {words}",
    (_POD, "Look at the storage driver's pods on the node"),
    "FailedMount or FailedAttachVolume, for another reason",
)
TROUBLES: Final = (
    CLAIM_MISSING,
    CLASS_MISSING,
    NO_CLASS,
    PROVISIONING,
    CLAIM_LOST,
    CLAIM_PENDING,
    MULTI_ATTACH,
    CONFIG_VOLUME,
    SECRET_VOLUME,
    KEY_VOLUME,
    DRIVER_MISSING,
    MOUNT_RIGHTS,
    HOST_PATH,
    MOUNT_FAILED,
)

# kubernetes: pkg/controller/volume/persistentvolume/pv_controller.go; words of the scheduler: plugins/volumebinding
_CLAIM_RULES: Final = (
    rule(CLASS_MISSING, r'storageclass\.storage\.k8s\.io "(?P<name>[^"]+)" not found'),
    rule(NO_CLASS, r"no persistent volumes available for this claim and no storage class is set"),
    rule(PROVISIONING, r"failed to provision|provision|rpc error"),
)
_MISSING: Final = (rule(CLAIM_MISSING, r'persistentvolumeclaim "(?P<claim>[^"]+)" (not found|is being deleted)'),)
# kubernetes: pkg/volume/{configmap,secret,csi,hostpath}, pkg/controller/volume/attachdetach/reconciler/reconciler.go
_MOUNT_RULES: Final = (
    *_MISSING,
    rule(MULTI_ATTACH, r"Multi-Attach error"),
    rule(CONFIG_VOLUME, r'configmap "(?P<name>[^"]+)" not found'),
    rule(SECRET_VOLUME, r'secret "(?P<name>[^"]+)" not found'),
    rule(KEY_VOLUME, r"references non-existent (config|secret) key: (?P<name>\S+)"),
    rule(DRIVER_MISSING, r"driver name (?P<name>\S+) not found in the list of registered CSI drivers"),
    rule(MOUNT_RIGHTS, r"mount\S*: .{0,300}(access denied|permission denied)|mount\.nfs: "),
    rule(HOST_PATH, r"hostPath type check failed"),
    rule(MOUNT_FAILED, r"(?P<words>.+)"),
)


def find(facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong with the volumes of pods that have not started."""
    claims = {claim.metadata.name: claim for claim in facts.evidence.claims}
    for pod in (*facts.unscheduled, *facts.starting):
        found = list(_claims_of(facts, pod, claims))
        yield from found
        if not found and facts.is_starting(pod):
            events = latest(
                [each for each in facts.pod_events(pod) if each.reason in {"FailedMount", "FailedAttachVolume"}]
            )
            told = [each for each in facts.pod_events(pod) if each.reason in {"FailedMount", "FailedAttachVolume"}]
            # A time-out names only the volume; the event before it says why.
            telling = [each for each in told if "timed out waiting for the condition" not in each.message]
            for event in latest(telling) or events:
                trouble, values = first_match(_MOUNT_RULES, event.message) or (MOUNT_FAILED, {})
                values = {name: text[:160] for name, text in values.items()}
                yield Finding(
                    trouble,
                    pod.metadata.name,
                    (facts.line(event),),
                    values | {"pod": pod.metadata.name},
                    values.get("name", ""),
                )


def _claims_of(facts: Facts, pod: Pod, claims: dict[str, Claim]) -> Iterator[Finding]:
    name = pod.metadata.name
    scheduled = condition_of(pod.status.conditions, "PodScheduled")
    message = scheduled.message if scheduled is not None and scheduled.status == "False" else ""
    told = first_match(_MISSING, message)
    named_ones = {
        volume.persistent_volume_claim.claim_name for volume in pod.spec.volumes or () if volume.persistent_volume_claim
    }
    for each in sorted(named_ones):
        values = {"claim": value(each), "pod": name}
        claim = claims.get(each)
        if claim is None and facts.is_absent("PersistentVolumeClaim", each):
            yield Finding(CLAIM_MISSING, name, (f"pvc {named(each)}: it does not exist",), values, each)
        elif claim is not None and claim.status.phase == "Lost":
            yield Finding(CLAIM_LOST, name, (f"pvc {named(each)}: phase Lost",), values, each)
        elif claim is not None and claim.status.phase == "Pending":
            yield from _pending(facts, name, claim, values)
    if told is not None and value(told[1].get("claim", "")) not in {
        each for each in named_ones if facts.is_absent("PersistentVolumeClaim", each)
    }:
        yield Finding(
            CLAIM_MISSING,
            name,
            (f"pod {named(name)}: PodScheduled is False: {said(message)}",),
            told[1] | {"pod": name},
            told[1]["claim"],
        )


def _pending(facts: Facts, pod: str, claim: Claim, values: dict[str, str]) -> Iterator[Finding]:
    """Yield why a claim has no volume; nothing for one that waits for its pod to be scheduled, as it should."""
    name = claim.metadata.name
    events = facts.events_of("PersistentVolumeClaim", name, claim.metadata.uid)
    if events and events[-1].reason == "WaitForFirstConsumer":
        return
    for event in latest([each for each in events if each.reason in {"ProvisioningFailed", "FailedBinding"}]):
        trouble, more = first_match(_CLAIM_RULES, event.message) or (PROVISIONING, {})
        yield Finding(trouble, pod, (f"pvc {named(name)}: phase Pending", facts.line(event)), values | more, name)
        return
    yield Finding(
        CLAIM_PENDING,
        pod,
        (f"pvc {named(name)}: phase Pending", *(facts.line(event) for event in latest(events))),
        values,
        name,
    )

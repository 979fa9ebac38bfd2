"""Unbound claims, and volumes that cannot be attached or mounted. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tfjob_operator.cli.diagnosis.advice import DESCRIBE_POD, NEW_CONFIG_MAP, NEW_KEYS
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, error, problems_in
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rules import first_match, rule, shorten, value
from tfjob_operator.cli.model.objects import PersistentVolumeClaim, PodDetails
from tfjob_operator.cli.model.pods import condition_of
from tfjob_operator.cli.model.words import quote, safe_name

_CLAIM: Final = "kubectl -n {namespace} describe pvc {claim}"
_OTHER_CLAIM: Final = ManifestChange("mount another PersistentVolumeClaim (claimName)")
_OR_OTHER: Final = ManifestChange("or mount another PersistentVolumeClaim (claimName)")
_STARTS: Final = "The pod then starts by itself"
_DRIVER: Final = "Ask your cluster administrator to check the storage driver of the node"
CLAIM_MISSING: Final = error(
    "claim-missing",
    480,
    'PersistentVolumeClaim "{claim}" not found (mounted by {who})',
    ("kubectl -n {namespace} get pvc", f"Create PersistentVolumeClaim {{claim}}. {_STARTS}", _OR_OTHER),
    "The template names a PersistentVolumeClaim that does not exist",
)
CLASS_MISSING: Final = error(
    "storage-class-missing",
    481,
    'StorageClass "{name}" of PersistentVolumeClaim "{claim}" not found (mounted by {who})',
    ("kubectl get storageclasses", "Create another PersistentVolumeClaim with one of them", _OTHER_CLAIM),
    "The claim's storageClassName does not exist",
)
NO_CLASS: Final = error(
    "claim-without-class",
    482,
    'PersistentVolumeClaim "{claim}" has no StorageClass, and no PersistentVolume matches it (mounted by {who})',
    ("kubectl get storageclasses,pv", "Create another PersistentVolumeClaim with a storageClassName", _OTHER_CLAIM),
    "No class, no default class, and no volume that matches",
)
PROVISIONING: Final = error(
    "provisioning-failed",
    483,
    'Provisioning a volume for PersistentVolumeClaim "{claim}" failed (mounted by {who})',
    (_CLAIM, "Ask your cluster administrator, if the message is not about the claim itself"),
    "The storage provisioner reports a failure",
)
CLAIM_LOST: Final = error(
    "claim-lost",
    484,
    'PersistentVolumeClaim "{claim}" has lost its PersistentVolume (mounted by {who})',
    (_CLAIM, "Ask your cluster administrator to restore the PersistentVolume", _OR_OTHER),
    "The claim's phase is Lost",
)
CLAIM_PENDING: Final = error(
    "claim-pending",
    485,
    'PersistentVolumeClaim "{claim}" is not bound yet (mounted by {who})',
    (_CLAIM, "Ask your cluster administrator whether the provisioner of its StorageClass is running"),
    "The claim is Pending, and no event gives a reason",
)
MULTI_ATTACH: Final = error(
    "volume-in-use",
    486,
    "A ReadWriteOnce volume is attached to another node (mounted by {who})",
    (
        "Find the pod that uses the volume: kubectl -n {namespace} get pods --output=wide",
        ManifestChange("mount a ReadWriteMany claim, or a claim of its own in each replica type"),
    ),
    "Multi-Attach error: a ReadWriteOnce volume is wanted on two nodes",
)
CONFIG_VOLUME: Final = error(
    "config-map-volume-missing",
    487,
    'ConfigMap "{name}" not found (mounted by {who})',
    (f"Create it from FILE; the file's name is the key. {_STARTS}: {NEW_CONFIG_MAP}=FILE",),
    "A volume is of a ConfigMap that does not exist",
)
SECRET_VOLUME: Final = error(
    "secret-volume-missing",
    488,
    'Secret "{name}" not found (mounted by {who})',
    (f"Create it from FILE; the file's name is the key. {_STARTS}: {NEW_KEYS}=FILE",),
    "A volume is of a Secret that does not exist",
)
KEY_VOLUME: Final = error(
    "volume-key-missing",
    489,
    'Key "{name}" not found in a ConfigMap or Secret (mounted by {who})',
    (
        "kubectl -n {namespace} describe pod {pod}",
        f"Add the key to OBJECT, the ConfigMap or Secret of the volume. {_STARTS}: kubectl -n {{namespace}} edit OBJECT",
        ManifestChange("or correct the key in items of the volume"),
    ),
    "A volume names a key that does not exist",
)
DRIVER_MISSING: Final = error(
    "csi-driver-missing",
    490,
    'CSI driver "{name}" is not registered on the node of {who}',
    ("kubectl get csinodes -o yaml", _DRIVER),
    "The CSI driver of a volume is not registered on the node",
)
MOUNT_RIGHTS: Final = error(
    "mount-refused",
    491,
    "Access denied by the storage server of a volume ({who})",
    (DESCRIBE_POD, "Check the path and the credentials of the volume, and whether the server exports it to the nodes"),
    "NFS or another server denies the mount",
)
HOST_PATH: Final = error(
    "host-path-missing",
    492,
    "hostPath does not exist on the node, or has another type ({who})",
    (DESCRIBE_POD, ManifestChange("correct path and type of the hostPath, or select nodes that have it")),
    "hostPath type check failed",
)
MOUNT_FAILED: Final = error(
    "mount-failed",
    493,
    "Attaching or mounting a volume failed ({who}): {words}",
    (DESCRIBE_POD, _DRIVER),
    "FailedMount or FailedAttachVolume, for another reason",
)
PROBLEMS: Final = problems_in(globals())

# kubernetes: pkg/controller/volume/persistentvolume/pv_controller.go; messages of the scheduler: plugins/volumebinding
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
    rule(MOUNT_RIGHTS, r"mount\S*: .{0,300}(access denied|permission denied|Operation not permitted)"),
    rule(HOST_PATH, r"hostPath type check failed"),
    rule(MOUNT_FAILED, r"(?P<words>.+)"),
)


def find(facts: Facts) -> Iterator[Finding]:
    """Yield problems with the volumes of pods that have not started."""
    claims = {claim.metadata.name: claim for claim in facts.evidence.claims}
    for pod in (*facts.unscheduled, *facts.starting):
        found = list(_claims_of(facts, pod, claims))
        yield from found
        if not found and facts.is_starting(pod):
            reported = facts.pod_events(pod, "FailedMount", "FailedAttachVolume")
            # A timeout only names the volume; the preceding event has the reason.
            specific = [each for each in reported if "timed out waiting for the condition" not in each.message]
            for event in latest(specific) or latest(reported):
                problem, values = first_match(_MOUNT_RULES, event.message) or (MOUNT_FAILED, {})
                values = {name: shorten(text) for name, text in values.items()}
                name = pod.metadata.name
                yield Finding(problem, name, (facts.line(event),), values | {"pod": name}, values.get("name", ""))


def _claims_of(facts: Facts, pod: PodDetails, claims: dict[str, PersistentVolumeClaim]) -> Iterator[Finding]:
    name = pod.metadata.name
    scheduled = condition_of(pod.status.conditions, "PodScheduled")
    message = scheduled.message if scheduled is not None and scheduled.status == "False" else ""
    reported = first_match(_MISSING, message)
    named_ones = {
        volume.persistent_volume_claim.claim_name for volume in pod.spec.volumes or () if volume.persistent_volume_claim
    }
    for each in sorted(named_ones):
        values = {"claim": value(each), "pod": name}
        claim = claims.get(each)
        if claim is None and facts.is_absent("PersistentVolumeClaim", each):
            yield Finding(CLAIM_MISSING, name, (f"pvc {safe_name(each)}: not found",), values, each)
        elif claim is not None and claim.status.phase == "Lost":
            yield Finding(CLAIM_LOST, name, (f"pvc {safe_name(each)}: phase Lost",), values, each)
        elif claim is not None and claim.status.phase == "Pending":
            yield from _pending(facts, name, claim, values)
    if reported is not None and value(reported[1].get("claim", "")) not in {
        each for each in named_ones if facts.is_absent("PersistentVolumeClaim", each)
    }:
        seen = f"pod {safe_name(name)}: PodScheduled is False: {quote(message)}"
        yield Finding(CLAIM_MISSING, name, (seen,), reported[1] | {"pod": name}, reported[1]["claim"])


def _pending(facts: Facts, pod: str, claim: PersistentVolumeClaim, values: dict[str, str]) -> Iterator[Finding]:
    """Yield why a claim is unbound; nothing for one that correctly waits for its pod to be scheduled."""
    name = claim.metadata.name
    events = facts.events_of("PersistentVolumeClaim", name, claim.metadata.uid)
    if events and events[-1].reason == "WaitForFirstConsumer":
        return
    for event in latest([each for each in events if each.reason in {"ProvisioningFailed", "FailedBinding"}]):
        problem, more = first_match(_CLAIM_RULES, event.message) or (PROVISIONING, {})
        yield Finding(problem, pod, (f"pvc {safe_name(name)}: phase Pending", facts.line(event)), values | more, name)
        return
    proofs = (f"pvc {safe_name(name)}: phase Pending", *(facts.line(event) for event in latest(events)))
    yield Finding(CLAIM_PENDING, pod, proofs, values, name)

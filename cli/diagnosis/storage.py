"""Unbound claims, and volumes that cannot be attached or mounted. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tfjob_operator.cli.diagnosis.advice import DESCRIBE_POD, NEW_CONFIG_MAP, NEW_KEYS
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, error
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rows import matched, of_pod
from tfjob_operator.cli.diagnosis.rules import rule
from tfjob_operator.cli.model.objects import PersistentVolumeClaim, PodDetails
from tfjob_operator.cli.model.pods import condition_of
from tfjob_operator.cli.model.words import join_some, quote, safe_name

_CLAIM: Final = "kubectl -n {namespace} describe pvc {claim}"
_OTHER_CLAIM: Final = ManifestChange("mount another PersistentVolumeClaim (claimName)")
_OR_OTHER: Final = ManifestChange("or mount another PersistentVolumeClaim (claimName)")
_STARTS: Final = "The pod then starts by itself"
_DRIVER: Final = "Ask your cluster administrator to check the storage driver of the node"
CLAIM_MISSING: Final = error(
    "claim-missing",
    'PersistentVolumeClaim "{claim}" not found (mounted by {who})',
    "The template names a PersistentVolumeClaim that does not exist",
    "kubectl -n {namespace} get pvc",
    f"Create PersistentVolumeClaim {{claim}}. {_STARTS}",
    _OR_OTHER,
)
CLASS_MISSING: Final = error(
    "storage-class-missing",
    'StorageClass "{name}" of PersistentVolumeClaim "{claim}" not found (mounted by {who})',
    "The claim's storageClassName does not exist",
    "kubectl get storageclasses",
    "Create another PersistentVolumeClaim with one of them",
    _OTHER_CLAIM,
)
_CLASSES: Final = "Check that StorageClass {class_name} exists: kubectl get storageclass {class_name}"
_CLASSES_KNOWN: Final = ("Create another PersistentVolumeClaim with a storageClassName of {classes}", _OTHER_CLAIM)
_NO_CLASSES: Final = (
    "The cluster has no StorageClass: ask your cluster administrator for StorageClass {name}, or a PersistentVolume with it",
)
NO_CLASS: Final = error(
    "claim-without-class",
    'PersistentVolumeClaim "{claim}" has no StorageClass, and no PersistentVolume matches it (mounted by {who})',
    "No class, no default class, and no volume that matches",
    "kubectl get storageclasses,pv",
    "Create another PersistentVolumeClaim with a storageClassName",
    _OTHER_CLAIM,
)
PROVISIONING: Final = error(
    "provisioning-failed",
    'Provisioning a volume for PersistentVolumeClaim "{claim}" failed (mounted by {who})',
    "The storage provisioner reports a failure",
    _CLAIM,
    "Ask your cluster administrator, if the message is not about the claim itself",
)
CLAIM_LOST: Final = error(
    "claim-lost",
    'PersistentVolumeClaim "{claim}" has lost its PersistentVolume (mounted by {who})',
    "The claim's phase is Lost",
    _CLAIM,
    "Ask your cluster administrator to restore the PersistentVolume",
    _OR_OTHER,
)
CLAIM_PENDING: Final = error(
    "claim-pending",
    'PersistentVolumeClaim "{claim}" is not bound yet (mounted by {who})',
    "The claim is Pending, and no event gives a reason",
    _CLAIM,
    "Ask your cluster administrator whether the provisioner of its StorageClass is running",
)
MULTI_ATTACH: Final = error(
    "volume-in-use",
    "A ReadWriteOnce volume is attached to another node (mounted by {who})",
    "Multi-Attach error: a ReadWriteOnce volume is wanted on two nodes",
    "Find the pod that uses the volume: kubectl -n {namespace} get pods --output=wide",
    ManifestChange("mount a ReadWriteMany claim, or a claim of its own in each replica type"),
)
CONFIG_VOLUME: Final = error(
    "config-map-volume-missing",
    'ConfigMap "{name}" not found (mounted by {who})',
    "A volume is of a ConfigMap that does not exist",
    f"Create it from FILE; the file's name is the key. {_STARTS}: {NEW_CONFIG_MAP}=FILE",
)
SECRET_VOLUME: Final = error(
    "secret-volume-missing",
    'Secret "{name}" not found (mounted by {who})',
    "A volume is of a Secret that does not exist",
    f"Create it from FILE; the file's name is the key. {_STARTS}: {NEW_KEYS}=FILE",
)
KEY_VOLUME: Final = error(
    "volume-key-missing",
    'Key "{name}" not found in a ConfigMap or Secret (mounted by {who})',
    "A volume names a key that does not exist",
    "kubectl -n {namespace} describe pod {pod}",
    f"Add the key to OBJECT, the ConfigMap or Secret of the volume. {_STARTS}: kubectl -n {{namespace}} edit OBJECT",
    ManifestChange("or correct the key in items of the volume"),
)
DRIVER_MISSING: Final = error(
    "csi-driver-missing",
    'CSI driver "{name}" is not registered on the node of {who}',
    "The CSI driver of a volume is not registered on the node",
    "kubectl get csinodes -o yaml",
    _DRIVER,
)
MOUNT_RIGHTS: Final = error(
    "mount-refused",
    "Access denied by the storage server of a volume ({who})",
    "NFS or another server denies the mount",
    DESCRIBE_POD,
    "Check the path and the credentials of the volume, and whether the server exports it to the nodes",
)
HOST_PATH: Final = error(
    "host-path-missing",
    "hostPath does not exist on the node, or has another type ({who})",
    "hostPath type check failed",
    DESCRIBE_POD,
    ManifestChange("correct path and type of the hostPath, or select nodes that have it"),
)
MOUNT_FAILED: Final = error(
    "mount-failed",
    "Attaching or mounting a volume failed ({who}): {words}",
    "FailedMount or FailedAttachVolume, for another reason",
    DESCRIBE_POD,
    _DRIVER,
)

_MAX_CLASSES: Final = 8
"""The most StorageClasses that are listed."""
# kubernetes: pkg/controller/volume/persistentvolume/pv_controller.go; messages of the scheduler: plugins/volumebinding
_CLAIM_RULES: Final = (
    rule(CLASS_MISSING, r'storageclass\.storage\.k8s\.io "(?P<name>[^"]+)" not found'),
    rule(NO_CLASS, r"no persistent volumes available for this claim and no storage class is set"),
    rule(PROVISIONING, r""),
)
_DELETED: Final = 'PersistentVolumeClaim "{claim}" is being deleted (mounted by {who})'
_WHEN_DELETED: Final = (
    f"See its finalizers, and which pods still use it: {_CLAIM}",
    f"Create PersistentVolumeClaim {{claim}} when the old one is gone. {_STARTS}",
    _OR_OTHER,
)
_MISSING: Final = (
    rule(CLAIM_MISSING, r'persistentvolumeclaim "(?P<claim>[^"]+)" not found'),
    rule(
        replace(CLAIM_MISSING, title=_DELETED, to_do=_WHEN_DELETED),
        r'persistentvolumeclaim "(?P<claim>[^"]+)" is being deleted',
    ),
)
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
        findings = list(_claims_of(facts, pod, claims))
        yield from findings
        if not findings and facts.is_starting(pod):
            reported = facts.pod_events(pod, "FailedMount", "FailedAttachVolume")
            # A timeout only names the volume; the preceding event has the reason.
            specific = [each for each in reported if "timed out waiting for the condition" not in each.message]
            for event in latest(specific) or latest(reported):
                yield from matched(_MOUNT_RULES, event.message, pod, facts.line(event))


def _claims_of(facts: Facts, pod: PodDetails, claims: dict[str, PersistentVolumeClaim]) -> Iterator[Finding]:
    mounted = {
        volume.persistent_volume_claim.claim_name for volume in pod.spec.volumes or () if volume.persistent_volume_claim
    }
    absent = {each for each in mounted if each not in claims and facts.is_absent("PersistentVolumeClaim", each)}
    scheduled = condition_of(pod.status.conditions, "PodScheduled")
    message = scheduled.message if scheduled is not None and scheduled.status == "False" else ""
    seen = f"pod {safe_name(pod.metadata.name)}: PodScheduled is False: {quote(message)}"
    missing = [finding for finding in matched(_MISSING, message, pod, seen) if finding.key not in absent]
    yield from missing
    for name in sorted(mounted - {finding.key for finding in missing if finding.problem.title == _DELETED}):
        claim, seen = claims.get(name), f"pvc {safe_name(name)}: "
        if name in absent:
            yield of_pod(CLAIM_MISSING, pod, key=name, claim=name).seen_in(f"{seen}not found")
        elif claim is not None and claim.status.phase == "Lost":
            yield of_pod(CLAIM_LOST, pod, key=name, claim=name).seen_in(f"{seen}phase Lost")
        elif claim is not None and claim.status.phase == "Pending":
            yield from _pending(facts, pod, claim, f"{seen}phase Pending")


def _pending(facts: Facts, pod: PodDetails, claim: PersistentVolumeClaim, seen: str) -> Iterator[Finding]:
    """Yield why a claim is unbound; nothing for one that correctly waits for its pod to be scheduled."""
    name, wanted = claim.metadata.name, claim.spec.storage_class_name or ""
    known = facts.evidence.storage_classes
    if known is not None and wanted and wanted not in (names := sorted(each.metadata.name for each in known)):
        proof = f"StorageClasses of the cluster: {join_some(names, _MAX_CLASSES) or 'none'}"
        problem = replace(CLASS_MISSING, to_do=_CLASSES_KNOWN if names else _NO_CLASSES)
        values = {"name": wanted, "claim": name, "classes": ",".join(names[:_MAX_CLASSES])}
        yield of_pod(problem, pod, key=name, **values).seen_in(f"{seen}, storageClassName {safe_name(wanted)}", proof)
        return
    events = facts.events_of("PersistentVolumeClaim", name, claim.metadata.uid)
    failures = latest([event for event in events if event.reason in {"ProvisioningFailed", "FailedBinding"}])
    if failures and events[-1].reason != "WaitForFirstConsumer":
        yield from matched(_CLAIM_RULES, failures[0].message, pod, seen, facts.line(failures[0]), key=name, claim=name)
    elif not events or events[-1].reason != "WaitForFirstConsumer":
        proofs = (facts.line(event) for event in latest(events))
        problem = replace(CLAIM_PENDING, to_do=(_CLASSES, *CLAIM_PENDING.to_do)) if wanted else CLAIM_PENDING
        yield of_pod(problem, pod, key=name, claim=name, class_name=wanted).seen_in(seen, *proofs)

"""Pod templates: field types, validation, and the facts about a template that stay in memory. Pure.

An API server reports type errors one at a time, in the words of its decoder; old versions quote neighboring values. It
does not report unknown fields. All fields of Kubernetes up to 1.36 are listed here, so that none is mistaken for a
typo. Vendor volume types are known by name only.

A decoded template takes ten times the memory of its bytes, and an operator has thousands of jobs. Therefore only what
every sync needs is kept (`facts_of`), and templates are decoded again to create pods or a PodGroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

from tfjob_operator.api.core import PodRestartPolicy
from tfjob_operator.api.decoding import is_deeper_than
from tfjob_operator.api.meta import JSON
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.reader import (
    ANY,
    FLAG,
    NUMBER_OR_TEXT,
    QUANTITY,
    TEXT,
    WHOLE,
    Fields,
    Kind,
    ListOf,
    MapOf,
    Path,
    Reader,
    check,
)
from tfjob_operator.api.v1.types import Port, TemplateFacts

_TEXTS: Final = ListOf(TEXT)


def _fields(
    *, texts: str = "", flags: str = "", numbers: str = "", lists: str = "", anything: str = "", **others: Kind
) -> Fields:
    """Return an object type from the names of its string, boolean, integer and list fields; pass others as keywords."""
    known: dict[str, Kind] = dict.fromkeys(texts.split(), TEXT)
    known |= dict.fromkeys(flags.split(), FLAG)
    known |= dict.fromkeys(numbers.split(), WHOLE)
    known |= dict.fromkeys(lists.split(), _TEXTS)
    known |= dict.fromkeys(anything.split(), ANY)
    return Fields(known | others)


def _belonging(place: str, names: str) -> dict[str, str]:
    """Return for the names of fields where they belong."""
    return dict.fromkeys(names.split(), place)


_NAMED: Final = _fields(texts="name")
_OPTIONAL_KEY: Final = _fields(texts="name key", flags="optional")
_OPTIONAL: Final = _fields(texts="name", flags="optional")


# Containers.
_FIELD_REF: Final = _fields(texts="apiVersion fieldPath")
_RESOURCE_FIELD_REF: Final = _fields(texts="containerName resource", divisor=QUANTITY)
_ENV: Final = _fields(
    texts="name value",
    valueFrom=_fields(
        configMapKeyRef=_OPTIONAL_KEY,
        secretKeyRef=_OPTIONAL_KEY,
        fieldRef=_FIELD_REF,
        resourceFieldRef=_RESOURCE_FIELD_REF,
        fileKeyRef=_fields(texts="volumeName path key", flags="optional"),
    ),
)
_ENV_FROM: Final = _fields(texts="prefix", configMapRef=_OPTIONAL, secretRef=_OPTIONAL)
_PORT: Final = _fields(texts="name protocol hostIP", numbers="containerPort hostPort")
_RESOURCES: Final = _fields(
    limits=MapOf(QUANTITY), requests=MapOf(QUANTITY), claims=ListOf(_fields(texts="name request"))
)
_VOLUME_MOUNT: Final = _fields(
    texts="name mountPath subPath subPathExpr mountPropagation recursiveReadOnly", flags="readOnly"
)
_EXEC: Final = _fields(lists="command")
_HTTP_GET: Final = _fields(
    texts="host path scheme", port=NUMBER_OR_TEXT, httpHeaders=ListOf(_fields(texts="name value"))
)
_TCP_SOCKET: Final = _fields(texts="host", port=NUMBER_OR_TEXT)
_PROBE: Final = _fields(
    numbers="initialDelaySeconds periodSeconds timeoutSeconds successThreshold failureThreshold "
    "terminationGracePeriodSeconds",
    exec=_EXEC,
    httpGet=_HTTP_GET,
    tcpSocket=_TCP_SOCKET,
    grpc=_fields(texts="service", numbers="port"),
)
_HANDLER: Final = _fields(exec=_EXEC, httpGet=_HTTP_GET, tcpSocket=_TCP_SOCKET, sleep=_fields(numbers="seconds"))
_PROFILE: Final = _fields(texts="type localhostProfile")
_SE_LINUX: Final = _fields(texts="user role type level")
_WINDOWS: Final = _fields(texts="gmsaCredentialSpec gmsaCredentialSpecName runAsUserName", flags="hostProcess")
_CONTAINER: Final = _fields(
    texts="name image imagePullPolicy workingDir restartPolicy terminationMessagePath terminationMessagePolicy",
    flags="stdin stdinOnce tty",
    lists="command args",
    env=ListOf(_ENV),
    envFrom=ListOf(_ENV_FROM),
    ports=ListOf(_PORT),
    resources=_RESOURCES,
    resizePolicy=ListOf(_fields(texts="resourceName restartPolicy")),
    restartPolicyRules=ListOf(_fields(texts="action", exitCodes=_fields(texts="operator", values=ListOf(WHOLE)))),
    volumeMounts=ListOf(_VOLUME_MOUNT),
    volumeDevices=ListOf(_fields(texts="name devicePath")),
    livenessProbe=_PROBE,
    readinessProbe=_PROBE,
    startupProbe=_PROBE,
    lifecycle=_fields(texts="stopSignal", postStart=_HANDLER, preStop=_HANDLER),
    securityContext=_fields(
        flags="allowPrivilegeEscalation privileged readOnlyRootFilesystem runAsNonRoot",
        numbers="runAsUser runAsGroup",
        texts="procMount",
        capabilities=_fields(lists="add drop"),
        seLinuxOptions=_SE_LINUX,
        windowsOptions=_WINDOWS,
        seccompProfile=_PROFILE,
        appArmorProfile=_PROFILE,
    ),
)


_OF_CONTAINERS: Final = _belonging(
    "a container of the template",
    "args command env envFrom image imagePullPolicy lifecycle livenessProbe ports readinessProbe startupProbe volumeMounts "
    "workingDir",
)
_OF_POD: Final = _belonging(
    "spec of the template",
    "affinity dnsPolicy hostNetwork imagePullSecrets initContainers nodeName nodeSelector priorityClassName runtimeClassName "
    "schedulerName serviceAccountName terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes",
)
_OF_METADATA: Final = _belonging("metadata of the template", "annotations labels")


# Scheduling.
_REQUIREMENTS: Final = ListOf(_fields(texts="key operator", lists="values"))
_SELECTOR: Final = _fields(matchLabels=MapOf(TEXT), matchExpressions=_REQUIREMENTS)
_NODE_TERM: Final = _fields(matchExpressions=_REQUIREMENTS, matchFields=_REQUIREMENTS)
_POD_TERM: Final = _fields(
    texts="topologyKey",
    lists="namespaces matchLabelKeys mismatchLabelKeys",
    labelSelector=_SELECTOR,
    namespaceSelector=_SELECTOR,
)
_POD_AFFINITY: Final = _fields(
    requiredDuringSchedulingIgnoredDuringExecution=ListOf(_POD_TERM),
    preferredDuringSchedulingIgnoredDuringExecution=ListOf(_fields(numbers="weight", podAffinityTerm=_POD_TERM)),
)
_AFFINITY: Final = _fields(
    nodeAffinity=_fields(
        requiredDuringSchedulingIgnoredDuringExecution=_fields(nodeSelectorTerms=ListOf(_NODE_TERM)),
        preferredDuringSchedulingIgnoredDuringExecution=ListOf(_fields(numbers="weight", preference=_NODE_TERM)),
    ),
    podAffinity=_POD_AFFINITY,
    podAntiAffinity=_POD_AFFINITY,
)
_SPREAD: Final = _fields(
    texts="topologyKey whenUnsatisfiable nodeAffinityPolicy nodeTaintsPolicy",
    numbers="maxSkew minDomains",
    lists="matchLabelKeys",
    labelSelector=_SELECTOR,
)


# Volumes.
_ITEMS: Final = ListOf(_fields(texts="key path", numbers="mode"))
_DOWNWARD: Final = ListOf(
    _fields(texts="path", numbers="mode", fieldRef=_FIELD_REF, resourceFieldRef=_RESOURCE_FIELD_REF)
)
_METADATA: Final = _fields(
    texts="name generateName namespace uid resourceVersion selfLink clusterName",
    numbers="generation deletionGracePeriodSeconds",
    lists="finalizers",
    anything="creationTimestamp deletionTimestamp managedFields ownerReferences",
    labels=MapOf(TEXT),
    annotations=MapOf(TEXT),
)
_CLAIM: Final = _fields(
    lists="accessModes",
    texts="storageClassName volumeAttributesClassName volumeMode volumeName",
    anything="dataSource dataSourceRef",
    selector=_SELECTOR,
    resources=_fields(limits=MapOf(QUANTITY), requests=MapOf(QUANTITY)),
)
_VOLUME: Final = _fields(
    texts="name",
    anything="awsElasticBlockStore azureDisk azureFile cephfs cinder fc flexVolume flocker gcePersistentDisk gitRepo "
    "glusterfs iscsi photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos vsphereVolume",
    emptyDir=_fields(texts="medium", sizeLimit=QUANTITY),
    hostPath=_fields(texts="path type"),
    nfs=_fields(texts="server path", flags="readOnly"),
    persistentVolumeClaim=_fields(texts="claimName", flags="readOnly"),
    configMap=_fields(texts="name", flags="optional", numbers="defaultMode", items=_ITEMS),
    secret=_fields(texts="secretName", flags="optional", numbers="defaultMode", items=_ITEMS),
    downwardAPI=_fields(numbers="defaultMode", items=_DOWNWARD),
    image=_fields(texts="reference pullPolicy"),
    csi=_fields(texts="driver fsType", flags="readOnly", nodePublishSecretRef=_NAMED, volumeAttributes=MapOf(TEXT)),
    ephemeral=_fields(flags="readOnly", volumeClaimTemplate=_fields(metadata=_METADATA, spec=_CLAIM)),
    projected=_fields(
        numbers="defaultMode",
        sources=ListOf(
            _fields(
                anything="clusterTrustBundle podCertificate",
                configMap=_fields(texts="name", flags="optional", items=_ITEMS),
                secret=_fields(texts="name", flags="optional", items=_ITEMS),
                downwardAPI=_fields(items=_DOWNWARD),
                serviceAccountToken=_fields(texts="audience path", numbers="expirationSeconds"),
            )
        ),
    ),
)
_POD_SPEC: Final = _fields(
    texts="serviceAccountName serviceAccount nodeName hostname subdomain hostnameOverride schedulerName "
    "priorityClassName runtimeClassName preemptionPolicy dnsPolicy",
    flags="automountServiceAccountToken hostNetwork hostPID hostIPC hostUsers shareProcessNamespace enableServiceLinks "
    "setHostnameAsFQDN",
    numbers="terminationGracePeriodSeconds activeDeadlineSeconds priority",
    # the first is read separately; the others are not allowed in pods that are created
    anything="restartPolicy ephemeralContainers",
    containers=ListOf(replace(_CONTAINER, places=_OF_POD)),
    initContainers=ListOf(replace(_CONTAINER, places=_OF_POD)),
    volumes=ListOf(_VOLUME),
    nodeSelector=MapOf(TEXT),
    affinity=_AFFINITY,
    tolerations=ListOf(_fields(texts="key operator value effect", numbers="tolerationSeconds")),
    topologySpreadConstraints=ListOf(_SPREAD),
    imagePullSecrets=ListOf(_NAMED),
    hostAliases=ListOf(_fields(texts="ip", lists="hostnames")),
    dnsConfig=_fields(lists="nameservers searches", options=ListOf(_fields(texts="name value"))),
    readinessGates=ListOf(_fields(texts="conditionType")),
    schedulingGates=ListOf(_NAMED),
    schedulingGroup=_fields(texts="podGroupName"),
    resourceClaims=ListOf(
        _fields(
            texts="name resourceClaimName resourceClaimTemplateName",
            source=_fields(texts="resourceClaimName resourceClaimTemplateName"),
        )
    ),
    resources=_RESOURCES,
    overhead=MapOf(QUANTITY),
    os=_NAMED,
    securityContext=_fields(
        numbers="runAsUser runAsGroup fsGroup",
        flags="runAsNonRoot",
        texts="fsGroupChangePolicy seLinuxChangePolicy supplementalGroupsPolicy",
        supplementalGroups=ListOf(WHOLE),
        sysctls=ListOf(_fields(texts="name value")),
        seLinuxOptions=_SE_LINUX,
        windowsOptions=_WINDOWS,
        seccompProfile=_PROFILE,
        appArmorProfile=_PROFILE,
    ),
)
POD_TEMPLATE: Final = replace(
    _fields(metadata=_METADATA, spec=replace(_POD_SPEC, places=_OF_CONTAINERS | _OF_METADATA)),
    places={"containers": "spec of the template"} | _OF_CONTAINERS | _OF_POD | _OF_METADATA,
)
"""A pod template. `restartPolicy` and the required containers are checked separately."""
VOLUMES: Final = ListOf(_VOLUME)
VOLUME_MOUNTS: Final = ListOf(_VOLUME_MOUNT)
"""The volume mounts of a container, for objects that have volumes and mounts outside a template."""
MAX_DEPTH: Final = 100
"""Nesting levels of a specification. The deepest field of a pod template in Kubernetes is at level 14."""


class CheckedTemplate(NamedTuple):
    """The result of reading a pod template.

    `policy` is None if there is no restart policy. `containers` is None if the containers cannot be read.
    """

    policy: PodRestartPolicy | None
    containers: tuple[str, ...] | None


def decode_spec(reader: Reader, raw: bytes | msgspec.Raw) -> JSON:
    """Return a specification as JSON. If it cannot be decoded, report an error and return an empty one."""
    if is_deeper_than(raw, MAX_DEPTH):
        reader.error("spec", "is nested too deeply")
        return {}
    try:
        return reader.mapping(msgspec.json.decode(raw), "spec")
    except (msgspec.DecodeError, UnicodeDecodeError):
        reader.error("spec", "contains a number or character that cannot be decoded")
        return {}


def read_template(reader: Reader, template: JSON, path: Path | str, *, may_be_empty: bool = False) -> CheckedTemplate:
    """Check the types of all known fields, and that each container has a name and an image.

    There must be at least one container unless `may_be_empty` is True; the caller checks which containers. The API server
    validates the values when a pod is created.
    """
    check(reader, template, POD_TEMPLATE, path)
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    names: tuple[str, ...] | None = None
    where = Path(Path(path, "spec"), "containers")
    if isinstance(containers, list) and containers:
        names = _read_containers(reader, containers, where)
    elif not containers and may_be_empty:
        names = ()
    elif not containers:
        reader.error(where, "Required value: at least one container")
    policy = spec.get("restartPolicy") if isinstance(spec, dict) else None
    return CheckedTemplate(reader.choice(policy, Path(Path(path, "spec"), "restartPolicy"), PodRestartPolicy), names)


def _read_containers(reader: Reader, containers: list[object], path: Path) -> tuple[str, ...]:
    """Check that each container has a name and an image. Return the names."""
    names: list[str] = []
    for index, container in enumerate(containers):
        if not isinstance(container, dict):
            continue  # reported by the type check
        if not container:
            reader.error(Path(path, index), "must be a container with a name and an image")
            continue
        for needed in ("name", "image"):
            if container.get(needed) is None or container[needed] == "":
                reader.error(Path(Path(path, index), needed), "Required value")
        own = container.get("name")
        names.append(own if isinstance(own, str) else "")
    return tuple(names)


_CANONICAL_TYPE: Final = {name.lower(): name for name in c.REPLICA_TYPES}
_NO_FACTS: Final = TemplateFacts()


def templates_of(raw: bytes | msgspec.Raw) -> Mapping[str, JSON]:
    """Return the templates of a checked specification by replica type, as the user wrote them. Do not modify them."""
    return templates_in(msgspec.json.decode(raw))


def templates_in(spec: JSON) -> Mapping[str, JSON]:
    """Return the templates of a decoded specification."""
    given: Any = spec["tfReplicaSpecs"]
    return {
        _CANONICAL_TYPE[key.lower()]: replica["template"]
        for key, replica in given.items()
        if replica.get("template") is not None
    }


def training_container(template: JSON) -> Mapping[str, Any]:
    """Return the container `tensorflow` of a checked template."""
    spec = template["spec"]
    containers = spec["containers"] if isinstance(spec, dict) else []
    return next(container for container in containers if container.get("name") == c.CONTAINER_NAME)


def containers_of(template: JSON) -> tuple[frozenset[str], bool]:
    """Return the names of all containers of a checked template, and whether a regular container has its own restart policy."""
    spec: Any = template.get("spec") or {}
    own = spec.get("containers") or []
    everything = [*own, *(spec.get("initContainers") or [])]
    restarts = any(each.get("restartPolicy") or each.get("restartPolicyRules") for each in own)
    return frozenset(each.get("name") or "" for each in everything), restarts


def facts_of(template: JSON) -> TemplateFacts:
    """Return the facts that are kept of a checked template."""
    container, spec = training_container(template), template["spec"]
    found = TemplateFacts(
        ports=_named_ports(container),
        sets=frozenset(variable.get("name") for variable in container.get("env") or ()) & c.OUR_VARIABLES,
        scheduler_name=(spec.get("schedulerName") or "") if isinstance(spec, dict) else "",
        has_topology=_has_topology(template),
    )
    return _NO_FACTS if found == _NO_FACTS else found  # most templates set none of these


def _has_topology(template: JSON) -> bool:
    """Return True if Kueue's topology-aware scheduling chooses the nodes of the pods."""
    meta: Any = template.get("metadata") or {}
    spec: Any = template.get("spec") or {}
    gates = spec.get("schedulingGates") or ()
    return not c.TOPOLOGY_ANNOTATIONS.isdisjoint(meta.get("annotations") or ()) or any(
        gate.get("name") == c.TOPOLOGY_GATE for gate in gates
    )


def _named_ports(container: Mapping[str, Any]) -> tuple[Port, ...]:
    """Return all named ports in order; `tfjob-port` is added if it is missing."""
    ports: list[Port] = []
    for port in container.get("ports") or ():
        name, number = port.get("name"), port.get("containerPort")
        if isinstance(name, str) and isinstance(number, int):
            ports.append(Port(name, number, port.get("protocol") or c.TCP))
    if all(port.name != c.PORT_NAME for port in ports):
        ports.append(Port(c.PORT_NAME, c.DEFAULT_PORT))
    return tuple(ports)

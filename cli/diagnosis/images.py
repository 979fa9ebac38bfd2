"""Images that cannot be pulled. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from msgspec import structs

from tfjob_operator.api.core import IMAGE_REASONS, ContainerStateWaiting
from tfjob_operator.api.v1.constants import CONTAINER_NAME
from tfjob_operator.cli.diagnosis import refining
from tfjob_operator.cli.diagnosis.advice import DESCRIBE_NODE, DESCRIBE_POD
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, error, warning
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rows import matched, of_event
from tfjob_operator.cli.diagnosis.rules import rule, value
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.facts import listed
from tfjob_operator.cli.model.facts import text as text_of
from tfjob_operator.cli.model.objects import ContainerStatusDetails, PodDetails
from tfjob_operator.cli.model.pods import statuses
from tfjob_operator.cli.model.words import quote, safe_name

_CORRECT: Final = ManifestChange("correct image in the template")
_OTHER: Final = ManifestChange("or use another image in the template")
_CREDENTIALS: Final = (
    "If the image is private, store the credentials of its registry in a Secret; SECRET is its name: "
    "kubectl -n {namespace} create secret docker-registry SECRET --docker-server=SERVER --docker-username=USER "
    "--docker-password=PASSWORD"
)
_PULL_SECRET: Final = ManifestChange("correct image in the template, or add the Secret to imagePullSecrets")
_ADD_SECRET: Final = ManifestChange("add the Secret to imagePullSecrets")
_EXISTING: Final = (
    "The template pulls with Secret {secret}: check that it exists, and has credentials for the registry of the image. If it "
    "is missing, create it; the pull is retried: kubectl -n {namespace} create secret docker-registry {secret} "
    "--docker-server=SERVER --docker-username=USER --docker-password=PASSWORD"
)
"""In place of `_CREDENTIALS` if the template names a Secret."""
_OTHER_SECRET: Final = ManifestChange("or correct image, or imagePullSecrets, in the template")
INVALID_NAME: Final = error(
    "image-name-invalid",
    'Invalid image name "{image}" ({who})',
    "The image name cannot be parsed",
    ManifestChange("correct image in the template: REGISTRY/REPOSITORY:TAG in lower-case letters"),
)
NEVER_PULL: Final = error(
    "image-never-pulled",
    'Image "{image}" is not present on the node, and imagePullPolicy is Never ({who})',
    "imagePullPolicy is Never, and the node does not have the image",
    ManifestChange("set imagePullPolicy to IfNotPresent"),
    "Or load the image onto the nodes",
)
RATE_LIMIT: Final = error(
    "image-rate-limit",
    'Rate limit of the registry reached for image "{image}" ({who})',
    "The registry's rate limit (429, toomanyrequests)",
    "The pull is retried; the limit may last for hours",
    _CREDENTIALS,
    _ADD_SECRET,
)
MISSING_OR_PRIVATE: Final = error(
    "image-missing-or-private",
    'Image "{image}" does not exist or is private ({who})',
    "The registry does not distinguish a missing image from a private one (Docker Hub)",
    "Check the name and the tag first: the registry gives the same answer for both",
    _CREDENTIALS,
    _PULL_SECRET,
)
NO_RIGHT: Final = error(
    "image-no-right",
    'Registry denied the pull of image "{image}" ({who})',
    "The registry requires credentials, or rejects those it was given (401, 403)",
    _CREDENTIALS,
    _ADD_SECRET,
)
NOT_FOUND: Final = error(
    "image-not-found",
    'Image "{image}" not found ({who})',
    "The registry does not have the repository or the tag",
    _CORRECT,
)
WRONG_PLATFORM: Final = error(
    "image-wrong-platform",
    'Image "{image}" has no variant for the platform of the node ({who})',
    "The image has no manifest for the node's platform",
    ManifestChange("use an image built for the node's platform, or set nodeSelector kubernetes.io/arch"),
)
CERTIFICATE: Final = error(
    "image-registry-untrusted",
    'TLS error of the registry of image "{image}" ({who})',
    "TLS with the registry fails: x509, or HTTP where HTTPS was expected",
    "Ask your cluster administrator to add the registry's CA to the container runtime of the nodes",
    _OTHER,
)
NO_SPACE: Final = error(
    "image-no-space",
    'No disk space on the node for image "{image}" ({who})',
    "The node's disk is full while the image is pulled",
    DESCRIBE_NODE,
    ManifestChange("use a smaller image, or nodes with larger disks"),
)
UNREACHABLE: Final = error(
    "image-registry-unreachable",
    'Registry of image "{image}" is unreachable ({who})',
    "The registry's name does not resolve, or it cannot be connected to",
    "Check that the registry is up and that the nodes can connect to it (proxy, firewall)",
    _CORRECT,
)
_UNRESOLVED: Final = 'Registry of image "{image}" is unreachable: the node cannot resolve {host} ({who})'
_OF_NODE_DNS: Final = (
    (
        "Check the host in the name of the image. Nodes resolve it with their own name servers, not with cluster DNS: ask your "
        "cluster administrator whether these answer, and know it"
    ),
    _CORRECT,
)
SIGNATURE: Final = error(
    "image-signature",
    'Signature of image "{image}" rejected ({who})',
    "The container runtime's signature policy rejects the image",
    ManifestChange("use an image that is signed as the policy of the nodes requires"),
)
PULL_FAILED: Final = error(
    "image-pull-failed", 'Pulling image "{image}" failed ({who})', "Any other failure of a pull", DESCRIBE_POD, _CORRECT
)
SECRET_MISSING: Final = warning(
    "image-pull-secret-missing",
    'Image pull Secret "{secret}" not found ({who})',
    "A Secret of imagePullSecrets does not exist",
    "Create it with the credentials of the registry: kubectl -n {namespace} create secret docker-registry {secret} "
    "--docker-server=SERVER --docker-username=USER --docker-password=PASSWORD",
)
SLOW: Final = warning(
    "image-slow",
    "Pulling the image for {age} ({who})",
    "An image has been pulled for more than five minutes",
    "Large images take minutes",
    DESCRIBE_POD,
)

RULES: Final = (
    # kubernetes: pkg/kubelet/images/image_manager.go
    rule(INVALID_NAME, r"InvalidImageName|couldn't parse image (name|reference)|invalid reference format"),
    rule(NEVER_PULL, r"ErrImageNeverPull|not present with pull policy of Never"),
    rule(SIGNATURE, r"SignatureValidationFailed"),
    # Messages of containerd (remotes/docker), CRI-O (containers/image), the old dockershim, and of registries
    rule(RATE_LIMIT, r"toomanyrequests|too many requests|pull rate limit|status code: 429|\b429\b"),
    rule(NO_SPACE, r"no space left on device"),
    rule(
        WRONG_PLATFORM,
        r"no match for platform in manifest|no matching manifest|no image found in (manifest list|image index) for "
        r"architecture",
    ),
    rule(CERTIFICATE, r"x509: |server gave HTTP response to HTTPS client|tls: "),
    rule(MISSING_OR_PRIVATE, r"does not exist or may require"),
    rule(
        NO_RIGHT,
        r"pull access denied|insufficient_scope|authorization failed|unauthorized|authentication required|\b401\b|"
        r"\b403\b|denied: |no basic auth",
    ),
    rule(NOT_FOUND, r"manifest unknown|name unknown|: not found|\b404\b|repository does not exist|NotFound"),
    rule(
        replace(UNREACHABLE, title=_UNRESOLVED, to_do=_OF_NODE_DNS),
        r"\blookup (?P<host>[\w.-]*\w)(?: on \S+)?: "
        r"(?:no such host|read udp|dial udp|i/o timeout|server misbehaving|Temporary)",
    ),
    rule(
        UNREACHABLE,
        r"no such host|dial tcp|i/o timeout|connection refused|connection reset|TLS handshake timeout|deadline "
        r"exceeded|server misbehaving|RegistryUnavailable|EOF",
    ),
    rule(PULL_FAILED, r""),
)
_SECRET_NAME: Final = (rule(SECRET_MISSING, r"image pull secrets? \((?P<secret>[^)]+)\)"), rule(SECRET_MISSING, r""))
_MOST: Final = 340
_HEAD: Final = 120
"""The most characters of a message that are quoted, and how many of its beginning if its middle is cut."""
_LONG_S: Final = 300.0
"""A TensorFlow image with CUDA has 3 GB, which takes five minutes at 10 MB/s."""


def find(facts: Facts) -> Iterator[Finding]:
    """Yield which images cannot be pulled, and why."""
    for pod in facts.live_pods:
        if not pod.spec.node_name:
            continue
        states = ((status, status.state.waiting) for status in statuses(pod) if status.state is not None)
        found = next(((each, wait) for each, wait in states if wait and wait.reason in IMAGE_REASONS), None)
        if found is not None:
            yield from _of(facts, pod, *found)
        if facts.is_starting(pod):
            yield from _around(facts, pod, pulls=found is None)


def _of(
    facts: Facts, pod: PodDetails, status: ContainerStatusDetails, wait: ContainerStateWaiting
) -> Iterator[Finding]:
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    image = status.image or next((container.image for container in containers if container.name == status.name), "")
    # Before 1.29 ImagePullBackOff does not contain the reason; the event of the pull does.
    pull_events = facts.pod_events(pod, "Failed", "InspectFailed")
    events = latest([event for event in pull_events if "image" in event.message and image in event.message])
    text = " ".join((wait.reason, wait.message, *(event.message for event in events))).replace(f'"{image}"', "")
    waits = f"container {safe_name(status.name)} waiting: {safe_name(wait.reason)}: {quote(_shortened(wait.message, image))}"
    lines = (facts.line(structs.replace(event, message=_shortened(event.message, image))) for event in events)
    proofs = (*lines, f"pod {safe_name(pod.metadata.name)}: {waits}")
    values = {"container": status.name} if status.name != CONTAINER_NAME else {}
    for finding in matched(RULES, text, pod, *proofs, key=image, image=image, **values):
        yield _with_secret(facts, finding)


def _shortened(message: str, image: str) -> str:
    """Return a message with the image only once and, if it is still long, without its middle: the last words have the cause."""
    first, name, rest = message.partition(f'"{image}"')
    message = f"{first}{name}{rest.replace(f' {name}', '')}" if name else message
    cut = len(message) - _MOST
    return f"{message[:_HEAD]}... ({cut} more characters) ...{message[_HEAD + cut :]}" if cut > 0 else message


def _with_secret(facts: Facts, finding: Finding) -> Finding:
    """Return a pull that lacks credentials with the advice about the Secret that the template names, if it does."""
    given = listed(refining.pod_spec_of(facts, finding.affected).get("imagePullSecrets"))
    names = [value(name) for each in given if (name := text_of(each.get("name")))]
    if not names or _CREDENTIALS not in finding.problem.to_do:
        return finding
    before = tuple(step for step in finding.problem.to_do if step not in {_CREDENTIALS, _PULL_SECRET, _ADD_SECRET})
    problem = replace(finding.problem, to_do=(*before, _EXISTING, _OTHER_SECRET))
    return replace(finding, problem=problem, values={**finding.values, "secret": names[0]})


def _around(facts: Facts, pod: PodDetails, *, pulls: bool) -> Iterator[Finding]:
    for event in latest(facts.pod_events(pod, "FailedToRetrieveImagePullSecret")):
        yield from matched(_SECRET_NAME, event.message, pod, facts.line(event))
    started = facts.pod_events(pod, "Pulling", "Pulled")
    age_s = facts.age_s(started[-1].at) if pulls and started and started[-1].reason == "Pulling" else None
    if age_s is not None and age_s > _LONG_S:
        yield of_event(facts, SLOW, started[-1], pod, age=duration(age_s))

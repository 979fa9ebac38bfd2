"""Protobuf lists of a real API server contain the same objects as JSON lists."""

from functools import partial
from typing import Any

import pytest

from hack.control_plane import ControlPlane
from hack.objects import an_object, container_status
from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient, load_settings
from tfjob_operator.api.client.errors import BadRequestError, StatusError
from tfjob_operator.api.core import CONFIG_MAPS, NODES, PODS, SERVICES, Node
from tfjob_operator.api.core_messages import BY_RESOURCE
from tfjob_operator.api.meta import PartialObjectMetadata, Resource
from tfjob_operator.controller.jobs.children import ConfigMap, Pod, Service
from tfjob_operator.informers import Codec, ListWatch

TIME = "2026-11-23T10:00:00Z"
LABELS = {"group-name": "kubeflow.org", "job-name": "mnist", "replica-index": "0", "empty": ""}
CONDITIONS = [
    {"type": "PodScheduled", "status": "True", "lastTransitionTime": TIME},
    {"type": "DisruptionTarget", "status": "True", "reason": "Preempted", "message": "höher 优先"},
]
WAITING = {"waiting": {"reason": "ImagePullBackOff", "message": "not there"}}
ENDED = {"terminated": {"exitCode": -1, "signal": 9, "reason": "OOMKilled", "message": "x" * 300, "finishedAt": TIME}}
STATUSES: list[dict[str, Any]] = [
    {},
    {"phase": "Running", "conditions": CONDITIONS, "startTime": TIME, "podIP": "10.0.0.1", "qosClass": "BestEffort"},
    {"phase": "Failed", "reason": "Evicted", "message": "disk"},
    *(
        {
            "containerStatuses": [container_status(state, last, 300, image="i", imageID="", ready=False)],
            "initContainerStatuses": [container_status(ENDED, name="init", image="i", imageID="", ready=True)],
        }
        for state, last in ((WAITING, {}), ({"running": {"startedAt": TIME}}, ENDED), (ENDED, ENDED), ({}, {}))
    ),
]


SPEC = {
    "restartPolicy": "OnFailure",
    "terminationGracePeriodSeconds": 5,
    "initContainers": [{"name": "init", "image": "i"}],
    "containers": [{"name": "tensorflow", "image": "i", "env": [{"name": "A", "value": "b" * 2000}]}],
}
pod = partial(an_object, PODS, spec=SPEC)


async def create_owners(client: RestClient, namespace: str) -> list[dict[str, Any]]:
    """References to objects that exist, since the garbage collector deletes what has none: one that manages, and two others."""
    owners = []
    for name, controller in (("other", {"controller": False}), ("manager", {"controller": True}), ("another", {})):
        made = await client.create(CONFIG_MAPS, namespace, {"metadata": {"name": name}}, PartialObjectMetadata)
        owners.append({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made.metadata.uid} | controller)
    return owners


async def create_objects(client: RestClient, namespace: str) -> None:
    """Pods in all states, one of them about to be deleted; services and ConfigMaps of all sorts."""
    owners = await create_owners(client, namespace)
    for number, status in enumerate(STATUSES):
        await client.create(PODS, namespace, pod(f"pod-{number}", labels=LABELS, ownerReferences=owners[: number + 1]))
        await client.patch(PODS, namespace, f"pod-{number}", {"status": status}, subresource="status")
    await client.create(PODS, namespace, pod("stays", labels=LABELS, finalizers=["example.com/stays"]))
    await client.delete(PODS, namespace, "stays")
    ports = [{"port": 2222}]
    for name, spec in (
        ("headless", {"clusterIP": "None", "selector": {"job-name": "mnist", "replica-index": "0"}}),
        ("without-a-selector", {}),
    ):
        await client.create(
            SERVICES, namespace, {"metadata": {"name": name, "labels": LABELS}, "spec": {"ports": ports} | spec}
        )
    for name, data in (("data", {"data": {"a": "b" * 500}, "binaryData": {"c": "AAH/"}}), ("empty", {})):
        meta = {"name": name, "labels": LABELS, "ownerReferences": owners[1:2]}
        await client.create(CONFIG_MAPS, namespace, {"metadata": meta} | data)


async def create_nodes(client: RestClient, name: str) -> None:
    """A node with taints of both sorts and conditions, and one without."""
    await client.create(NODES, "", {"metadata": {"name": f"{name}-2", "labels": LABELS}})
    taints = [
        {"key": "a", "effect": "NoSchedule"},
        {"key": "b", "value": "c", "effect": "NoExecute", "timeAdded": TIME},
    ]
    await client.create(NODES, "", {"metadata": {"name": name, "labels": LABELS}, "spec": {"taints": taints}})
    beat = {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": TIME, "lastTransitionTime": TIME, "reason": "x"}
    status = {
        "conditions": [beat, {"type": "Sick", "status": "True"}],
        "allocatable": {"cpu": "3500m", "memory": "8Gi", "nvidia.com/gpu": "1"},
    }
    await client.patch(NODES, "", name, {"status": status}, subresource="status")


@pytest.mark.parametrize(
    ("resource", "kind"), [(PODS, Pod), (SERVICES, Service), (CONFIG_MAPS, ConfigMap), (NODES, Node)]
)
async def test_an_api_server_lists_the_same_in_protobuf_as_in_json(
    control_plane: ControlPlane, namespace: str, resource: Resource, kind: type[Pod | Service | ConfigMap | Node]
) -> None:
    """Field numbers, what is left out, times, negative numbers: whatever the tables have wrong would differ."""
    async with HttpTransport(load_settings(str(control_plane.kubeconfig))) as transport:
        client = RestClient(transport)
        await (create_nodes(client, namespace) if resource is NODES else create_objects(client, namespace))
        lists = []
        for message in (None, BY_RESOURCE[resource]):
            codec = Codec(resource, kind, message=message)
            # What controllers put into a namespace has no labels, and may come between the two lists.
            source = ListWatch(client, codec, namespace=namespace, label_selector="job-name=mnist")
            lists.append(await source.list(ListOptions()))
        if resource is NODES:
            for name in (namespace, f"{namespace}-2"):
                await client.delete(NODES, "", name)
        else:
            await client.patch(PODS, namespace, "stays", {"metadata": {"finalizers": None}})
    in_json, in_protobuf = lists
    assert len(in_json.items) >= 2
    assert (in_protobuf.items, in_protobuf.skipped) == (in_json.items, in_json.skipped)
    assert int(in_protobuf.resource_version) >= int(in_json.resource_version)  # other tests write meanwhile


async def test_pages_go_on_in_protobuf(control_plane: ControlPlane, namespace: str) -> None:
    """The token of a page."""
    async with HttpTransport(load_settings(str(control_plane.kubeconfig))) as transport:
        client = RestClient(transport)
        for number in range(3):
            await client.create(CONFIG_MAPS, namespace, {"metadata": {"name": f"map-{number}"}})
        source = ListWatch(client, Codec(CONFIG_MAPS, ConfigMap, message=BY_RESOURCE[CONFIG_MAPS]), namespace=namespace)
        first = await source.list(ListOptions(limit=2))
        rest = await source.list(ListOptions(limit=2, continue_token=first.continue_token))
    names = [found.metadata.name for found in first.items + rest.items]
    assert [name for name in names if name.startswith("map-")] == ["map-0", "map-1", "map-2"]
    assert len(first.items) == 2


async def test_what_an_api_server_refuses_is_the_same_error_as_in_json(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Its Status comes in protobuf too."""
    said: list[StatusError] = []
    async with HttpTransport(load_settings(str(control_plane.kubeconfig))) as transport:
        for message in (None, BY_RESOURCE[PODS]):
            source = ListWatch(RestClient(transport), Codec(PODS, Pod, message=message), namespace=namespace)
            with pytest.raises(BadRequestError) as refused:
                await source.list(ListOptions(continue_token="no token"))
            said.append(refused.value)
    assert str(said[0]) == str(said[1])
    assert said[0].details == said[1].details
    assert said[0].reason == said[1].reason == "BadRequest"

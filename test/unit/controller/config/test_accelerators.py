"""What accelerators need, put into pods."""

import copy
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fakes.jobs import container
from tfjob_operator.controller.config.values import Accelerator, Accelerators, HostVolume, Variable, with_accelerators

GPU = "nvidia.com/gpu"
LIB = HostVolume(name="lib", host_path="/usr/lib/nvidia-384", mount_path="/usr/lib/nvidia")
NVIDIA: Accelerators = {
    GPU: Accelerator(volumes=(LIB,), env_vars=(Variable(name="LD_LIBRARY_PATH", value="/usr/lib/nvidia"),))
}
VOLUME = {"name": "lib", "hostPath": {"path": "/usr/lib/nvidia-384"}}
MOUNT = {"name": "lib", "mountPath": "/usr/lib/nvidia"}
asking = partial(container, resources={"limits": {GPU: 1}})


def training(spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in spec["containers"] if each["name"] == "tensorflow")
    return found


def test_a_container_that_asks_by_limits_or_requests_gets_volumes_mounts_and_variables() -> None:
    """Once, also where both name the resource; whatever the quantity. The other containers stay as they are."""
    for resources in ({"limits": {GPU: 1}}, {"requests": {GPU: "0"}}, {"limits": {GPU: 1}, "requests": {GPU: 1}}):
        pod = container(resources=resources)["spec"]
        pod["containers"].insert(0, {"name": "sidecar"})
        spec = with_accelerators(pod, NVIDIA)
        assert spec["volumes"] == [VOLUME]
        assert training(spec)["volumeMounts"] == [MOUNT]
        assert training(spec)["env"] == [{"name": "LD_LIBRARY_PATH", "value": "/usr/lib/nvidia"}]
        assert spec["containers"][0] == {"name": "sidecar"}  # type: ignore[index]


def test_a_pod_that_asks_for_nothing_is_the_same_object() -> None:
    """Most pods, and all where nothing is configured."""
    for spec in (
        container(resources={})["spec"],
        container(resources={"limits": {"cpu": 1}})["spec"],
        {"containers": [{"name": "other", "resources": {GPU: 1}}]},
    ):
        assert with_accelerators(spec, NVIDIA) is spec
    spec = asking()["spec"]
    assert with_accelerators(spec, None) is spec
    assert with_accelerators(spec, {GPU: None}) is spec


def test_what_the_user_wrote_stays() -> None:
    """A volume or variable of the same name, and a mount at the same path, are kept as the user wrote them."""
    own = {"name": "lib", "emptyDir": {}}
    spec = with_accelerators(
        asking({"volumes": [own]}, env=[{"name": "LD_LIBRARY_PATH", "value": "mine"}])["spec"],
        NVIDIA,
    )
    assert spec["volumes"] == [own]
    assert "volumeMounts" not in training(spec)
    assert training(spec)["env"] == [{"name": "LD_LIBRARY_PATH", "value": "mine"}]
    mounted = [{"name": "data", "mountPath": "/usr/lib/nvidia/"}]
    pod = asking({"volumes": [{"name": "data"}]}, volumeMounts=mounted)["spec"]
    spec = with_accelerators(pod, NVIDIA)
    assert (spec["volumes"], training(spec)["volumeMounts"]) == ([{"name": "data"}], mounted)


def test_malformed_parts_of_a_template_are_no_obstacle() -> None:
    """The API server will say what is wrong with the pod."""
    malformed: list[Any] = [[], {"limits": None, "requests": ["x"]}, "many"]
    for resources in malformed:
        spec = container(resources=resources)["spec"]
        assert with_accelerators(spec, NVIDIA) is spec
    spec = asking({"volumes": None}, volumeMounts=None, env=None)["spec"]
    assert with_accelerators(spec, NVIDIA)["volumes"] == [VOLUME]


NAMES = st.sampled_from(["a", "b", "lib"])
PATHS = st.sampled_from(["/a", "/b", "/lib/c"])
ACCELERATORS = st.dictionaries(
    st.sampled_from(["x.com/a", "x.com/b", "x.com/c"]),
    st.builds(
        Accelerator,
        volumes=st.lists(st.builds(HostVolume, name=NAMES, host_path=PATHS, mount_path=PATHS), max_size=3).map(tuple),
        env_vars=st.lists(st.builds(Variable, name=NAMES, value=st.text(max_size=2)), max_size=2).map(tuple),
    ),
)
PODS = st.builds(
    lambda pod_spec, **fields: container(pod_spec, **fields)["spec"],
    st.fixed_dictionaries(
        {},
        optional={
            "volumes": st.lists(NAMES.map(lambda name: {"name": name, "emptyDir": {}}), max_size=2, unique_by=str)
        },
    ),
    resources=st.fixed_dictionaries(
        {},
        optional={
            key: st.dictionaries(st.sampled_from(["x.com/a", "x.com/b", "cpu"]), st.just(1))
            for key in ("limits", "requests")
        },
    ),
    volumeMounts=st.lists(st.builds(lambda name, path: {"name": name, "mountPath": path}, NAMES, PATHS), max_size=1),
    env=st.lists(st.builds(lambda name: {"name": name, "value": "own"}, NAMES), max_size=2, unique_by=str),
)


@given(PODS, ACCELERATORS)
def test_twice_is_once_in_any_order_and_nothing_of_the_users_is_changed(
    spec: dict[str, Any], accelerators: dict[str, Accelerator]
) -> None:
    """So a child may be built again, by another process, with the same result; and every name and path is there once."""
    before = copy.deepcopy(spec)
    once = with_accelerators(spec, accelerators)
    assert spec == before
    assert with_accelerators(once, accelerators) == once
    assert with_accelerators(spec, dict(reversed(accelerators.items()))) == once
    old, new = training(spec), training(once)
    for key, name in (("volumeMounts", "mountPath"), ("env", "name")):
        assert new[key][: len(old[key])] == old[key]
        names = [each[name] for each in new[key]]
        assert len(set(names)) == len(names)
    volumes: Any = once.get("volumes") or []
    assert volumes[: len(spec.get("volumes") or [])] == (spec.get("volumes") or [])
    assert len({each["name"] for each in volumes}) == len(volumes)
    added = new["volumeMounts"][len(old["volumeMounts"]) :]
    assert {each["name"] for each in added} <= {each["name"] for each in volumes if "hostPath" in each}

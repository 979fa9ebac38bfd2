"""Pods that an API server rejects, each with a secret in or beside the invalid value; and the recorded responses."""

from typing import Any, Final

SECRET: Final = "Hunter2Secret"
"""In every rejected pod. It has capital letters, which most names must not contain."""


def refused_pods() -> dict[str, dict[str, Any]]:
    """Return the pods, by their error."""
    neighbour = {"name": "PASSWORD", "value": SECRET}
    containers: dict[str, dict[str, Any]] = {
        "env value is a number": {"env": [neighbour, {"name": "A", "value": 3}]},
        "env value is an object": {"env": [neighbour, {"name": "A", "value": {"secret": SECRET}}]},
        "env is an object": {"env": {"PASSWORD": SECRET}},
        "env is a string": {"env": SECRET},
        "env name is invalid": {"env": [{"name": f"{SECRET}=1", "value": SECRET}]},
        "args hold a number": {"args": ["--password", SECRET, 5]},
        "args hold a fraction": {"args": ["--password", SECRET, 5.25]},
        "args are a string": {"args": SECRET},
        "command is an object": {"command": {"run": SECRET}},
        "port is a string": {"ports": [{"containerPort": SECRET}]},
        "port is a fraction": {"ports": [{"containerPort": 22.5, "name": SECRET}]},
        "port is out of range": {"ports": [{"containerPort": 70000, "name": SECRET}]},
        "ports are twice there": {"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]},
        "quantity is no number": {"resources": {"limits": {"cpu": SECRET}}},
        "quantity is a list": {"resources": {"limits": {"cpu": [SECRET]}}},
        "request above the limit": {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}},
        "unknown volume": {"volumeMounts": [{"name": SECRET.lower(), "mountPath": "/a"}]},
        "mount path is a number": {"volumeMounts": [{"name": "a", "mountPath": 5}], "env": [neighbour]},
        "pull policy": {"imagePullPolicy": SECRET},
        "image with spaces": {"image": f" {SECRET} "},
        "container name": {"name": f'{SECRET}: must, be ] quoted \\" {{'},
        "probe of two kinds": {"livenessProbe": {"exec": {"command": [SECRET]}, "httpGet": {"port": SECRET + "/"}}},
        "security context": {"securityContext": {"runAsUser": SECRET}},
        "field reference": {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": SECRET}}}]},
        "a value and a source": {
            "env": [{"name": "A", "value": SECRET, "valueFrom": {"secretKeyRef": {"name": "a", "key": f"{SECRET}/"}}}]
        },
        "working directory is true": {"workingDir": True, "env": [neighbour]},
        "stdin is a string": {"stdin": SECRET},
    }
    term, during = {"key": "a", "operator": SECRET, "values": [SECRET]}, "DuringSchedulingIgnoredDuringExecution"
    specs: dict[str, dict[str, Any]] = {
        "restart policy": {"restartPolicy": SECRET},
        "node selector": {"nodeSelector": {"a b": SECRET, "c": f"{SECRET} {SECRET}"}},
        "node selector holds a number": {"nodeSelector": {"password": SECRET, "c": 5}},
        "toleration": {"tolerations": [{"key": "a", "operator": SECRET, "value": SECRET}]},
        "volume of two kinds": {
            "volumes": [{"name": "a", "emptyDir": {"medium": SECRET}, "hostPath": {"path": f"../{SECRET}"}}]
        },
        "volumes are strings": {"volumes": [SECRET]},
        "deadline": {"activeDeadlineSeconds": SECRET},
        "host name": {"hostname": f"{SECRET}_"},
        "DNS": {"dnsPolicy": SECRET, "dnsConfig": {"nameservers": [SECRET]}},
        "affinity": {
            "affinity": {"nodeAffinity": {f"required{during}": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}}
        },
        "sysctls": {"securityContext": {"sysctls": [{"name": f"{SECRET} ", "value": SECRET}]}},
        "grace": {"terminationGracePeriodSeconds": 1.5, "hostname": SECRET.lower()},
    }
    metadata: dict[str, dict[str, Any]] = {
        "long label": {"labels": {"a": SECRET * 6}},
        "annotation is a number": {"annotations": {"password": SECRET, "a": 5}},
        "label is an object": {"labels": {"a": {"b": SECRET}}},
        "finalizer": {"finalizers": [f"{SECRET} "]},
        "time": {"creationTimestamp": SECRET},
    }
    pods = {what: _pod({}, {}, fields) for what, fields in containers.items()}
    pods |= {what: _pod({}, fields, {}) for what, fields in specs.items()}
    pods |= {what: _pod(fields, {}, {}) for what, fields in metadata.items()}
    return pods


def _pod(metadata: dict[str, Any], spec: dict[str, Any], container: dict[str, Any]) -> dict[str, Any]:
    containers = [{"name": "tensorflow", "image": "i"} | container]
    whole = {"metadata": {"name": "refused"} | metadata, "spec": {"containers": containers} | spec}
    return {"apiVersion": "v1", "kind": "Pod"} | whole

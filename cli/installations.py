"""The installations of this operator in a cluster, as read from its Deployments. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tfjob_operator.cli.model.facts import listed, mapping, number, text

SELECTOR: Final = "app.kubernetes.io/name=tfjob-operator,app.kubernetes.io/component!=page"
"""Selects the operator's Deployments. The page's Deployment has the same name label."""
_CONTAINER: Final = "operator"
_MANIFESTS: Final = frozenset({"--controller-config-file", "--monitoring-port", "--namespace"})
"""Flags that the manifests set themselves."""
_PLAIN: Final = re.compile(r"--[a-z][-a-z0-9]*(=[-A-Za-z0-9.,:/_]*)?")
"""A flag that is the same in YAML, in a shell and in the replacement of sed."""


class Installation(NamedTuple):
    """A Deployment of this operator; `served` is the namespace that it serves, "" for all. `flags` are `--name=value`.

    `account` is the name of its ServiceAccount.
    """

    namespace: str
    name: str
    replicas: int
    served: str
    flags: tuple[str, ...]
    account: str

    def serves(self, namespace: str) -> bool:
        """Return True if it writes the jobs of a namespace."""
        return self.replicas > 0 and self.served in {"", namespace}

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def installations(deployments: Iterable[Mapping[str, Any]]) -> list[Installation]:
    """Return what these Deployments of the operator run, by namespace and name."""
    return sorted(map(_installation, deployments))


def _installation(body: Mapping[str, Any]) -> Installation:
    meta, spec = mapping(body.get("metadata")), mapping(body.get("spec"))
    pod = mapping(mapping(spec.get("template")).get("spec"))
    containers = listed(pod.get("containers"))
    container = next((each for each in containers if each.get("name") == _CONTAINER), next(iter(containers), {}))
    given = [container.get(key) for key in ("command", "args")]
    words = [each for part in given if isinstance(part, list) for each in part if isinstance(each, str)]
    flags = {flag_name(flag): flag for flag in _flags(words)}
    namespace = text(meta.get("namespace"))
    served = flags.get("--namespace", "").partition("=")[2]
    return Installation(
        namespace,
        text(meta.get("name")),
        number(spec.get("replicas")),
        namespace if served.startswith("$") else served,
        tuple(each for name, each in flags.items() if name not in _MANIFESTS),
        text(pod.get("serviceAccountName")) or "default",
    )


def _flags(words: Sequence[str]) -> Iterator[str]:
    """Yield the flags, with their values also if these are words of their own."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word.startswith("--"):
            has_word = "=" not in word and following and not following.startswith("-")
            yield f"{word}={following}" if has_word else word


def flag_name(flag: str) -> str:
    """Return the name of a flag, without its value."""
    return flag.partition("=")[0]


def is_plain(flag: str) -> bool:
    """Return True if a flag needs no quotes in YAML, in a shell and in the replacement of sed."""
    return bool(_PLAIN.fullmatch(flag))

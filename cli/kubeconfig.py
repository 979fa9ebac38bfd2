"""Which server, as whom, and in which namespace: read from kubeconfig files as kubectl reads them.

The operator leaves these files to the `kubernetes` package, whose import takes longer than a whole `kubectl get`. So here they
are read with nothing but a YAML parser. Their rules are client-go's (`tools/clientcmd`): the first file that sets a value wins,
a relative path is relative to its file, a token file wins over a token.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import yaml

from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.overrides import Overrides

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
NO_OVERRIDES: Final = Overrides()
TIMEOUT_S: Final = 30.0
"""The default timeout of a response that is no stream. kubectl has none."""
_IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the server. Certificates and keys are PEM; None or "" where nothing is given.

    `context` is its name in the kubeconfig, "" inside a pod. `command` is the entry of a credential plugin in the
    kubeconfig; `cluster` is the entry of the cluster, which that plugin may be given. `impersonate` are headers of each
    request. `timeout_s` is the time limit of a response, None for none.
    """

    server: str
    namespace: str = "default"
    context: str = ""
    authority: str | None = None
    verify: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    command: Mapping[str, Any] | None = field(default=None, repr=False)
    cluster: Mapping[str, Any] = field(default_factory=dict, repr=False)
    impersonate: tuple[tuple[str, str], ...] = ()
    timeout_s: float | None = TIMEOUT_S


def read_access(
    kubeconfig: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    overrides: Overrides = NO_OVERRIDES,
) -> Access:
    """Read the given file, or those of KUBECONFIG, or ~/.kube/config; in a pod without any of them, the pod's own token.

    `overrides` are the options that replace values of these files. Raises CliError, which says what is missing and where.
    """
    if kubeconfig:
        paths = [Path(kubeconfig)]
        if not paths[0].is_file():
            raise CliError(f"kubeconfig file {kubeconfig} not found")
    else:
        named = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
        paths = [Path(name) for name in named] or [Path.home() / ".kube" / "config"]
    merged = _merge(_load(path) for path in paths if path.is_file())
    if not merged["clusters"] and context is None and not overrides.server:
        found = _of_pod(namespace)
        if found is not None:
            return found
        raise CliError("no cluster configured: set KUBECONFIG or pass --kubeconfig")
    return _access(merged, context, namespace, overrides)


def _load(path: Path) -> Mapping[str, Any]:
    """Read one file, and make its paths absolute. The files that they name are not read yet."""
    try:
        document = yaml.load(path.read_text("utf-8"), Loader=_LOADER)  # noqa: S506 - a safe loader, compiled if there is one
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read kubeconfig file {path}: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise CliError(f"kubeconfig file {path} is not valid YAML{line}") from error  # the text may hold a token
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise CliError(f"kubeconfig file {path} is not a mapping")
    for each in _entries(document, "clusters"):
        _make_absolute(each.get("cluster"), path.parent, ("certificate-authority",))
    for each in _entries(document, "users"):
        _make_absolute(each.get("user"), path.parent, ("client-certificate", "client-key", "tokenFile"))
    return document


def _make_absolute(about: Any, folder: Path, names: Iterable[str]) -> None:
    if not isinstance(about, dict):
        return
    for name in names:
        if about.get(name):
            about[name] = str(folder / str(about[name]))
    plugin = about.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):  # else it is found in the PATH
        plugin["command"] = str(folder / str(plugin["command"]))


def _merge(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for document in documents:
        merged["current-context"] = merged["current-context"] or _text(document.get("current-context")) or ""
        for section, entry in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for each in _entries(document, section):
                about = each.get(entry)
                merged[section].setdefault(str(each.get("name")), about if isinstance(about, dict) else {})
    return merged


def _entries(document: Mapping[str, Any], section: str) -> list[dict[str, Any]]:
    found = document.get(section) or []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _access(merged: Mapping[str, Any], context: str | None, namespace: str | None, overrides: Overrides) -> Access:
    name = context or merged["current-context"]
    if not name and not overrides.server:
        raise CliError(
            "the kubeconfig has no current context: choose one with `kubectl config use-context`, or pass --context"
        )
    if name and name not in merged["contexts"]:
        raise CliError(f'context "{name}" does not exist')
    chosen = merged["contexts"].get(name) or {}
    cluster = dict(_named(merged, "clusters", overrides.cluster, chosen.get("cluster")))
    user = dict(_named(merged, "users", overrides.user, chosen.get("user")))
    _override(cluster, user, overrides)
    if not cluster.get("server"):
        raise CliError(f'context "{name}" has no cluster with a server')
    if "auth-provider" in user:
        raise CliError("auth-provider was removed in Kubernetes 1.26: use a credential plugin (exec) in the kubeconfig")
    command = user.get("exec") if isinstance(user.get("exec"), dict) else None
    token_file = user.get("tokenFile")
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        namespace=namespace or str(chosen.get("namespace") or "default"),
        context=name,
        authority=_pem(cluster, "certificate-authority"),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        tls_server_name=_text(cluster.get("tls-server-name")),
        proxy=_text(cluster.get("proxy-url")),
        certificate=_pem(user, "client-certificate"),
        key=_pem(user, "client-key"),
        token=_read(Path(str(token_file))).strip() if token_file else _text(user.get("token")),
        basic=(str(user["username"]), str(user.get("password", ""))) if user.get("username") else None,
        command=command,
        cluster=cluster,
        impersonate=tuple(_impersonation(user)),
        timeout_s=TIMEOUT_S if overrides.request_timeout is None else overrides.request_timeout or None,
    )


def _named(merged: Mapping[str, Any], section: str, override: str | None, name: object) -> Mapping[str, Any]:
    """Return an entry of the kubeconfig. Raises CliError for one that an option names and that is missing."""
    if override and override not in merged[section]:
        raise CliError(f'{section.removesuffix("s")} "{override}" does not exist')
    return merged[section].get(override or str(name)) or {}


def _override(cluster: dict[str, Any], user: dict[str, Any], given: Overrides) -> None:
    """Replace what options give, by the rules of clientcmd: options of TLS go before all of the file's."""
    if given.server:
        cluster["server"] = given.server
    if given.certificate_authority or given.insecure_skip_tls_verify:
        for name in ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"):
            cluster.pop(name, None)
        cluster["insecure-skip-tls-verify"] = given.insecure_skip_tls_verify
        cluster["certificate-authority"] = given.certificate_authority
    if given.token:
        for name in ("tokenFile", "exec", "username", "auth-provider"):
            user.pop(name, None)
        user["token"] = given.token
    if given.as_:
        for name in ("as", "as-uid", "as-groups", "as-user-extra"):
            user.pop(name, None)
    named = {"as": given.as_, "as-uid": given.as_uid, "as-groups": given.as_group}
    user |= {name: value for name, value in named.items() if value}


def _impersonation(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the headers of impersonation. Raises CliError for a group or UID without a user, as kubectl does."""
    found = [("Impersonate-User", str(user["as"]))] if user.get("as") else []
    found += [("Impersonate-Uid", str(user["as-uid"]))] if user.get("as-uid") else []
    found += [("Impersonate-Group", str(each)) for each in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        found += [(f"Impersonate-Extra-{quote(str(key).lower())}", str(each)) for each in values]
    if found and not user.get("as"):
        raise CliError("impersonating a UID or groups requires a user: pass --as")
    if not all(value.isascii() and value.isprintable() for _, value in found):
        raise CliError("names to impersonate must be printable ASCII")
    yield from found


def _text(value: Any) -> str | None:
    """Return a value as text, even if YAML took it for a number; None if it is missing or empty."""
    return str(value) if value else None


def _pem(entry: Mapping[str, Any], name: str) -> str | None:
    """Return what is embedded as `name`-data, or what lies in the file that `name` names."""
    embedded = entry.get(f"{name}-data")
    if embedded:
        try:
            return base64.b64decode(str(embedded), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise CliError(f"{name}-data of the kubeconfig is not valid base64") from error
    return _read(Path(str(entry[name]))) if entry.get(name) else None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {path}, named in the kubeconfig: {error}") from error


def _of_pod(namespace: str | None) -> Access | None:
    """Return how a pod reaches its own cluster, as client-go's `InClusterConfig` does; None outside a pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not (host and port and (_IN_CLUSTER / "token").is_file()):
        return None
    address = f"[{host}]" if ":" in host else host
    own = _IN_CLUSTER / "namespace"
    return Access(
        server=f"https://{address}:{port}",
        namespace=namespace or (_read(own).strip() if own.is_file() else "default"),
        authority=_read(_IN_CLUSTER / "ca.crt"),
        token=_read(_IN_CLUSTER / "token").strip(),
    )

"""Kubeconfig files, merged and validated by client-go's rules (`tools/clientcmd`), for the operator and the plugin.

The first file that sets a value wins. A relative path is relative to its file. A field that client-go rejects causes an error
that names it. Token files and credential plugins are handled separately, since they are read repeatedly. docs/design/client.md
lists the differences from client-go.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from tfjob_operator.api.access import Access, AccessError, basic, bearer, checked_header, read_text
from tfjob_operator.api.credential_plugin import Plugin

NOTHING: Final[Mapping[str, Any]] = {}
MAX_DEPTH: Final = 100  # nesting levels that are read; kubeconfigs have about ten
_TYPES: Final = {str: "a string", bool: "true or false", list: "a list", dict: "a mapping"}
_AUTHORITY: Final = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")
_CERTIFICATE: Final = ("client-certificate", "client-certificate-data", "client-key", "client-key-data")
_SECRETS: Final = ("token", "tokenFile", "username", "password")
_CONTEXT: Final = dict.fromkeys(("cluster", "user", "namespace"), str)
_CLUSTER: Final[dict[str, type]] = {
    **dict.fromkeys(("server", "tls-server-name", "proxy-url", *_AUTHORITY[:2]), str),
    **dict.fromkeys(("insecure-skip-tls-verify", "disable-compression"), bool),
}
_USER: Final[dict[str, type]] = {
    **dict.fromkeys((*_SECRETS, *_CERTIFICATE, "as", "as-uid"), str),
    **dict.fromkeys(("as-user-extra", "exec", "auth-provider"), dict),
    "as-groups": list,
}
_EXEC: Final[dict[str, type]] = {
    **dict.fromkeys(("command", "apiVersion", "interactiveMode", "installHint"), str),
    **dict.fromkeys(("args", "env"), list),
    "provideClusterInfo": bool,
}
_PATHS: Final = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
    "contexts": (),
}
_BETA: Final = "client.authentication.k8s.io/v1beta1"
_VERSIONS: Final = ("client.authentication.k8s.io/v1", _BETA)
_MODES: Final = ("Never", "IfAvailable", "Always")
_EXTENSION: Final = "client.authentication.k8s.io/exec"
"""The cluster extension for credential plugins."""


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One context: `cluster` and `user` contain only fields that are known and set, with valid types and absolute paths.

    `known` contains the settings that do not depend on `cluster` and `user`.
    """

    known: Access
    cluster: Mapping[str, Any] = field(repr=False)
    user: Mapping[str, Any] = field(repr=False)
    token_file: str | None

    def access(self) -> Access:
        """Build the access without the `kubernetes` package, whose import takes longer than a whole `kubectl get`.

        Raises AccessError. A test compares the result with that package.
        """
        cluster, user = self.cluster, self.user
        tls = self.known.server.startswith("https:")
        header = basic(user["username"], user["password"]) if "username" in user else None
        return self.complete(
            replace(
                self.known,
                authority=_pem(cluster, "certificate-authority") if tls else None,
                verify="insecure-skip-tls-verify" not in cluster,
                tls_server_name=cluster.get("tls-server-name"),
                proxy=cluster.get("proxy-url"),
                certificate=_pem(user, "client-certificate") if tls else None,
                key=_pem(user, "client-key") if tls else None,
                authorization=f"Bearer {user['token']}" if "token" in user else header,
            )
        )

    def complete(self, access: Access) -> Access:
        """Read the token file, which takes precedence over a token. Raises AccessError."""
        header = access.authorization and checked_header(access.authorization, "the token of the kubeconfig")
        if self.token_file:
            try:
                header = bearer(read_text(Path(self.token_file)), f"the token file {self.token_file}")
            except AccessError:
                if header is None:
                    raise
        return replace(access, authorization=header)


def read_kubeconfig(
    file: str | None = None,
    *,
    names: Mapping[str, str | None] = NOTHING,
    cluster: Mapping[str, Any] = NOTHING,
    user: Mapping[str, Any] = NOTHING,
) -> Kubeconfig | None:
    """Read `file`, the files of KUBECONFIG, or ~/.kube/config. Return None if they have no cluster and none is requested.

    `names` may select a `context`, and a `cluster` and `user` that replace the context's. Fields in the arguments `cluster` and
    `user` override those in the files. Raises AccessError.
    """
    named = [file] if file else [each for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    merged: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for path in named or [str(Path.home() / ".kube" / "config")]:
        if not _merge(merged, Path(path)) and file:
            raise AccessError(f"kubeconfig file {file} not found")
    if not (merged["clusters"] or names.get("context") or "server" in cluster):
        return None
    context = names.get("context") or merged["current-context"]
    if not context and "server" not in cluster:
        raise AccessError("the kubeconfig has no current context: pass --context, or set current-context in it")
    if context and context not in merged["contexts"]:
        raise AccessError(f'context "{context}" does not exist')
    chosen = _fields(f'context "{context}"', merged["contexts"].get(context, {}), _CONTEXT)
    where, of_cluster = _named(merged, "cluster", names, chosen)
    server = _cluster(where, of_cluster, cluster)
    where, of_user = _named(merged, "user", names, chosen)
    given = _user(where, of_user, user)
    plugin = None
    if "exec" in given:
        plugin = _plugin(where, given["exec"], of_user["folder"], server | _config(of_cluster))
    static = {name: given[name] for name in (*_SECRETS, *_CERTIFICATE) if name in given}
    return Kubeconfig(
        Access(
            server["server"].rstrip("/"),
            namespace=chosen.get("namespace", "default"),
            context=context,
            plugin=None if static else plugin,  # as in client-go, only for users without other credentials
            impersonate=tuple(_impersonation(where, given)),
        ),
        server,
        {name: value for name, value in static.items() if name != "tokenFile"},
        static.get("tokenFile"),
    )


def _merge(merged: dict[str, Any], path: Path) -> bool:
    """Merge a file into the earlier ones; return False if it does not exist. Files that it refers to are not read yet."""
    where, folder = f"kubeconfig file {path}", path.absolute().parent
    loaded = _load(path, where)
    if loaded is None:
        return False
    document = _fields(where, loaded, {"current-context": str, **dict.fromkeys(_PATHS, list)})
    merged["current-context"] = merged["current-context"] or document.get("current-context", "")
    for section, references in _PATHS.items():
        found: dict[str, Any] = {}
        for each in document.get(section, ()):
            name = each.get("name") if isinstance(each, dict) else None
            about = (each.get(section.removesuffix("s")) or {}) if name else None
            if not isinstance(name, str) or not isinstance(about, dict) or name in found:
                raise AccessError(f"{where}: {section} must be a list of mappings, each with a name of its own")
            set_ = [key for key in references if about.get(key) and isinstance(about[key], str)]
            absolute = {key: str(folder / about[key]) for key in set_}
            found[name] = {**about, **absolute, "folder": folder}
        merged[section] = found | merged[section]
    return True


def _load(path: Path, where: str) -> dict[str, Any] | None:
    import yaml

    try:
        text = path.read_text("utf-8")
        loader, depth = getattr(yaml, "CSafeLoader", yaml.SafeLoader), 0
        for event in yaml.parse(text, Loader=loader):  # `load` would exhaust the stack on deeply nested YAML
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise AccessError(f"{where} is nested too deeply")
        document = yaml.load(text, Loader=loader)  # noqa: S506 - both are safe
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AccessError(f"cannot read {where}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # no `from error`: its text may contain a token
        mark = getattr(error, "problem_mark", None)
        raise AccessError(f"{where} is not valid YAML{f', line {mark.line + 1}' if mark else ''}") from None
    if not isinstance(document, dict | None):
        raise AccessError(f"{where} is not a mapping")
    return document or {}


def _named(
    merged: Mapping[str, Any], kind: str, names: Mapping[str, str | None], context: Mapping[str, str]
) -> tuple[str, Mapping[str, Any]]:
    """Return a name for error messages and the entry that a context refers to, or {} if the entry does not exist."""
    name = names.get(kind) or context.get(kind, "")
    if names.get(kind) and name not in merged[f"{kind}s"]:
        raise AccessError(f'{kind} "{name}" does not exist')
    return f'{kind} "{name}"', merged[f"{kind}s"].get(name, {})


def _cluster(where: str, entry: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cluster with the given fields. Any TLS field given replaces all TLS fields of the file."""
    hidden = [
        *(_AUTHORITY if given.keys() & {*_AUTHORITY} else ()),
        *(["tls-server-name"] if "server" in given else ()),
    ]
    cluster = _fields(where, entry, _CLUSTER, hidden) | {**given}
    if "server" not in cluster:
        raise AccessError(f"{where}: server is missing")
    if _pem(cluster, "certificate-authority") and "insecure-skip-tls-verify" in cluster:
        raise AccessError(f"{where}: certificate-authority and insecure-skip-tls-verify are both set")
    return cluster


def _user(where: str, entry: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user with the given fields; allow one authentication method in addition to a certificate."""
    hidden = [*_SECRETS, "exec", "auth-provider"] if "token" in given else []
    hidden += ["as-uid", "as-groups", "as-user-extra"] if "as" in given else []
    user = _fields(where, entry, _USER, hidden) | {**given}
    if "auth-provider" in user:
        raise AccessError(f"{where}: auth-provider is not supported, use a credential plugin (exec)")
    methods = [name for name in _SECRETS if name in user]
    if {*methods} & {"token", "tokenFile"} and {*methods} & {"username", "password"}:
        raise AccessError(f"{where}: {methods[0]} and {methods[-1]} are both set, only one method is allowed")
    if "username" in user:
        user.setdefault("password", "")
    else:
        user.pop("password", None)
    if _pem(user, "client-certificate"):
        if not _pem(user, "client-key"):
            raise AccessError(f"{where}: client-certificate is set without client-key")
        return user
    return {name: value for name, value in user.items() if name not in _CERTIFICATE}


def _plugin(where: str, entry: Mapping[str, Any], folder: Path, cluster: Mapping[str, Any]) -> Plugin:
    read = _fields(f"{where}: exec", entry, _EXEC)
    command, version, args = read.get("command", ""), read.get("apiVersion"), read.get("args", [])
    mode = read.get("interactiveMode", "IfAvailable" if version == _BETA else None)
    if not command:
        raise AccessError(f"{where}: exec.command is missing")
    if version not in _VERSIONS:
        raise AccessError(f"{where}: exec.apiVersion must be one of {', '.join(_VERSIONS)}")
    if mode not in _MODES:
        raise AccessError(f"{where}: exec.interactiveMode must be one of {', '.join(_MODES)}")
    listed = [variable if isinstance(variable, dict) else {} for variable in read.get("env", ())]
    env = [_fields(f"{where}: exec.env", each, {"name": str, "value": str}) for each in listed]
    if not (all(isinstance(argument, str) for argument in args) and all("name" in variable for variable in env)):
        raise AccessError(f"{where}: exec.args must be strings, and exec.env mappings with a name")
    return Plugin(
        command=(str(folder / command) if os.sep in command else command, *args),  # otherwise it is looked up in PATH
        api_version=str(version),
        environment={variable["name"]: variable.get("value", "") for variable in env},
        mode=mode,
        hint=read.get("installHint", ""),
        cluster=cluster if read.get("provideClusterInfo") else None,
    )


def _config(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cluster extension for plugins, which they receive as `config`."""
    listed = _fields("extensions", entry, {"extensions": list}).get("extensions", ())
    found = [each.get("extension") for each in listed if isinstance(each, dict) and each.get("name") == _EXTENSION]
    return {"config": found[0]} if found else {}


def _impersonation(where: str, user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield impersonation headers. Raises AccessError for a group or UID without a user, like kubectl."""
    found = [("Impersonate-User", user["as"])] if "as" in user else []
    found += [("Impersonate-Uid", user["as-uid"])] if "as-uid" in user else []
    found += [("Impersonate-Group", each) for each in user.get("as-groups", ())]
    extra = user.get("as-user-extra", {})
    for key, values in _fields(f"{where}: as-user-extra", extra, dict.fromkeys(extra, list)).items():
        found += [(f"Impersonate-Extra-{quote(str(key).lower())}", each) for each in values]
    if found and "as" not in user:
        raise AccessError(f"{where}: impersonating a UID or groups requires a user: pass --as")
    if not all(isinstance(value, str) and value.isascii() and value.isprintable() for _, value in found):
        raise AccessError(f"{where}: names to impersonate must be printable ASCII")
    yield from found


def _pem(entry: Mapping[str, Any], name: str) -> str | None:
    """Return the data embedded as `name`-data, or the content of the file `name`. Raises AccessError."""
    if name in entry and f"{name}-data" in entry:
        raise AccessError(f"{name} and {name}-data of the kubeconfig are both set")
    if embedded := entry.get(f"{name}-data"):
        try:
            return base64.b64decode("".join(embedded.split()), validate=True).decode()
        except ValueError:
            raise AccessError(f"{name}-data of the kubeconfig is not valid base64") from None
    return read_text(Path(entry[name])) if name in entry else None


def _fields(
    where: str, entry: Mapping[str, Any], types: Mapping[str, type], hidden: Collection[str] = ()
) -> dict[str, Any]:
    """Return the known fields that are set. Raises AccessError for a value of the wrong type, like client-go."""
    found = {name: entry[name] for name in types if entry.get(name) not in (None, "", False, [])}
    for name, value in found.items():
        if not isinstance(value, types[name]):
            raise AccessError(f"{where}: {name} must be {_TYPES[types[name]]}")
    return {name: value for name, value in found.items() if name not in hidden}

"""Pushes artifacts to a registry by the API of the OCI distribution specification 1.1.

Credentials are those of `docker login`: from the variable DOCKER_AUTH_CONFIG (JSON), or the file config.json in DOCKER_CONFIG
or ~/.docker, including its credential helpers. They are sent by HTTPS only, except to loopback.
"""

import base64
import ipaddress
import json
import os
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from email.message import Message
from pathlib import Path
from typing import Any, Final, NamedTuple

from hack.control_plane.build.commands import ControlPlaneError
from hack.image.build import INDEX
from hack.publish.artifacts import MANIFEST, Artifact, digest_of

TIMEOUT_S: Final = 300.0
"""Per operation on a socket: a registry may verify a large blob before it responds."""
HELPER_LIMIT_S: Final = 30.0
DOCKER_HUB: Final = "docker.io"
API_HOSTS: Final = {DOCKER_HUB: "registry-1.docker.io"}
"""Registries whose API has another host."""
CONFIG_KEYS: Final = {DOCKER_HUB: "https://index.docker.io/v1/"}
"""Registries that docker's configuration lists under another name."""
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')


class RegistryError(ControlPlaneError):
    """The registry refused a request or cannot be reached. `code` is the HTTP status, 0 without a response."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Response(NamedTuple):
    """A response of a registry."""

    headers: Message
    body: bytes


class Registry:
    """A registry, and the path below which its repositories are."""

    def __init__(self, address: str) -> None:
        """`address` is HOST[:PORT][/PATH], such as registry.example.com/team. Raises RegistryError if it is not valid."""
        host, _, path = address.partition("/")
        if "://" in address or not host or not re.fullmatch(r"([a-z0-9._-]+(/[a-z0-9._-]+)*)?", path):
            raise RegistryError(f"REGISTRY={address}: expected HOST[:PORT][/PATH], such as registry.example.com/team")
        self.address = address
        self._host = host
        self._path = f"{path}/" if path else ""
        self._base = f"{'http' if is_loopback(host) else 'https'}://{API_HOSTS.get(host, host)}/v2/"
        # A proxy of the environment cannot reach this machine's loopback.
        self._opener = urllib.request.build_opener(
            *([urllib.request.ProxyHandler({})] if is_loopback(host) else []), _NoAuthorizationElsewhere
        )
        self._authorization: dict[str, str] = {}

    def tagged(self, repository: str, tag: str) -> str | None:
        """Return the digest of the manifest with this tag, or None if there is none. Raises RegistryError."""
        try:
            found = self._send("GET", repository, f"manifests/{tag}", headers={"Accept": f"{INDEX}, {MANIFEST}"})
        except RegistryError as error:
            if error.code == 404:
                return None
            raise
        return digest_of(found.body)

    def push(self, artifact: Artifact, tag: str) -> None:
        """Push blobs that the registry does not have, then the manifests; the tag is set last. Raises RegistryError."""
        for digest, content in artifact.blobs.items():
            self._push_blob(artifact.repository, digest, content)
        for manifest in artifact.manifests:
            name = tag if manifest is artifact.manifests[-1] else manifest.digest
            headers = {"Content-Type": manifest.media_type}
            self._send("PUT", artifact.repository, f"manifests/{name}", manifest.data, headers)

    def _push_blob(self, repository: str, digest: str, content: bytes | Path) -> None:
        try:
            self._send("HEAD", repository, f"blobs/{digest}")
        except RegistryError as error:
            if error.code != 404:
                raise
            upload = self._send("POST", repository, "blobs/uploads/", b"").headers["Location"]
            if not upload:
                raise RegistryError(f"{self.address} did not name the location of an upload") from error
            place = f"{upload}{'&' if '?' in upload else '?'}digest={urllib.parse.quote(digest)}"
            self._send("PUT", repository, place, content, {"Content-Type": "application/octet-stream"})

    def _send(
        self,
        method: str,
        repository: str,
        place: str,
        body: bytes | Path | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a request; authenticate and repeat it if the registry requires that.

        place: below the repository, or an address that the registry returned.
        """
        name = self._path + repository
        url = urllib.parse.urljoin(f"{self._base}{name}/", place)
        own = url.startswith(self._base)  # other hosts, such as storage, get no credentials
        for repeated in (False, True):
            sent = {**(headers or {})}
            if own and name in self._authorization:
                sent["Authorization"] = self._authorization[name]
            try:
                return self._open(method, url, body, sent)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 401 or repeated or not own:
                        message = (
                            f"{method} {url.partition('?')[0]}: {error.code} {error.reason}{_reason(error.read())}"
                        )
                        raise RegistryError(message, error.code) from error
                self._authorization[name] = self._authorize(error.headers.get_all("WWW-Authenticate") or [], name)
        raise AssertionError("unreachable")

    def _open(self, method: str, url: str, body: bytes | Path | None, headers: Mapping[str, str]) -> Response:
        if urllib.parse.urlsplit(url).scheme != "https" and not is_loopback(urllib.parse.urlsplit(url).netloc):
            raise RegistryError(f"{url.partition('?')[0]}: plain HTTP is used on loopback only")
        with ExitStack() as opened:
            size = body.stat().st_size if isinstance(body, Path) else len(body or b"")
            data = opened.enter_context(body.open("rb")) if isinstance(body, Path) else body
            request = urllib.request.Request(url, data, dict(headers), method=method)  # noqa: S310 - checked above
            if data is not None:
                request.add_header("Content-Length", str(size))
            try:
                response = opened.enter_context(self._opener.open(request, timeout=TIMEOUT_S))
                return Response(response.headers, response.read())
            except urllib.error.HTTPError:
                raise
            except OSError as error:  # URLError is one
                raise RegistryError(f"{method} {url.partition('?')[0]}: {error}") from error

    def _authorize(self, challenges: list[str], name: str) -> str:
        """Return the value of the Authorization header for a repository. Raises RegistryError."""
        known = credentials(self._host)
        basic = "Basic " + base64.b64encode(":".join(known).encode()).decode() if known else ""
        for challenge in challenges:
            scheme, _, rest = challenge.partition(" ")
            if scheme.lower() == "bearer":
                parameters = dict(_PARAMETER.findall(rest))
                query = {"service": parameters.get("service", ""), "scope": f"repository:{name}:pull,push"}
                url = f"{parameters.get('realm', '')}?{urllib.parse.urlencode(query)}"
                try:
                    answer = self._open("GET", url, None, {"Authorization": basic} if basic else {})
                except urllib.error.HTTPError as error:
                    with error:
                        message = f"{self._host} refused a token: {error.code} {error.reason}{_reason(error.read())}"
                    raise RegistryError(f"{message}; {_login(self._host)}", error.code) from error
                token = json.loads(answer.body)
                return f"Bearer {token.get('token') or token['access_token']}"
            if scheme.lower() == "basic" and basic:
                return basic
        raise RegistryError(f"{self._host} requires credentials; {_login(self._host)}", 401)


class _NoAuthorizationElsewhere(urllib.request.HTTPRedirectHandler):
    """Follows redirects, such as from a blob to its storage, with the same method and without the credentials."""

    def redirect_request(self, req: urllib.request.Request, *details: Any) -> urllib.request.Request | None:
        request = super().redirect_request(req, *details)
        if request is not None:
            request.method = req.get_method()
            request.remove_header("Authorization")
        return request


def is_loopback(host: str) -> bool:
    """Return True if a host, possibly with a port, is this machine."""
    name = urllib.parse.urlsplit(f"//{host}").hostname or ""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def credentials(host: str) -> tuple[str, str] | None:
    """Return user and password for a registry from docker's configuration. Raises RegistryError if that cannot be read."""
    file = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    text = os.environ.get("DOCKER_AUTH_CONFIG") or (file.read_text() if file.is_file() else "{}")
    key = CONFIG_KEYS.get(host, host)
    try:
        config: dict[str, Any] = json.loads(text)
        if helper := config.get("credHelpers", {}).get(key) or config.get("credsStore"):
            command = [f"docker-credential-{helper}", "get"]
            done = subprocess.run(
                command, input=key, capture_output=True, text=True, check=False, timeout=HELPER_LIMIT_S
            )
            if done.returncode == 0:
                found = json.loads(done.stdout)
                return found["Username"], found["Secret"]
        entry = config.get("auths", {}).get(key, {})
        if "auth" in entry:
            user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
            return user, password
        return (entry["username"], entry["password"]) if "username" in entry else None
    except (ValueError, KeyError, AttributeError, OSError, subprocess.TimeoutExpired) as error:
        raise RegistryError(f"cannot read the credentials of {host} from docker's configuration: {error}") from error


def _login(host: str) -> str:
    return f"run `docker login {host}`, or set DOCKER_AUTH_CONFIG"


def _reason(body: bytes) -> str:
    """Return the messages in the body of an error."""
    try:
        return "".join(f": {each['message']}" for each in json.loads(body)["errors"])
    except (ValueError, KeyError, TypeError):
        return ""

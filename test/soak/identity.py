"""The operator's credentials: a certificate in files, and a service account token in a file. Both expire."""

import base64
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from hack.control_plane import ControlPlane
from hack.objects import a_kubeconfig

USER: Final = "operator-that-is-renewed"
NAMESPACE: Final = "operator"
ISSUER: Final = "https://kubernetes.default.svc"
LONG_S: Final = 86400.0
LEEWAY_S: Final = 60.0
"""For so long after its end an API server still takes a token."""


class Identity:
    """A kubeconfig that names the files, as those of kubelets do. An API server takes whichever of the two is valid."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._token = folder / "token"
        self.kubeconfig = folder / "kubeconfig-of-files"
        plane.run_kubectl("create", "namespace", NAMESPACE)
        plane.run_kubectl("create", "serviceaccount", USER, f"--namespace={NAMESPACE}")
        bind = ("--clusterrole=cluster-admin", f"--serviceaccount={NAMESPACE}:{USER}")
        plane.run_kubectl("create", "clusterrolebinding", USER, *bind)
        found = plane.run_kubectl("get", "serviceaccount", USER, f"--namespace={NAMESPACE}", "--output=json").stdout
        self._uid: str = json.loads(found)["metadata"]["uid"]
        self.issue_token(LONG_S)
        made = self.issue_certificate(LONG_S)
        authority = {"certificate-authority": str(plane.directory / "pki" / "ca.crt")}
        user = {"client-certificate": made[0], "client-key": made[1], "tokenFile": str(self._token)}
        self.kubeconfig.write_text(json.dumps(a_kubeconfig(plane.server, user, namespace="", **authority)))

    def issue_certificate(self, life_s: float) -> tuple[str, str]:
        """Write a certificate that ends after so many seconds; return the paths of its files."""
        made = self._plane.issue_client_certificate(USER, USER, ["system:masters"], life=timedelta(seconds=life_s))
        return str(made.certificate), str(made.key)

    def issue_token(self, life_s: float) -> None:
        """Write a token that an API server takes for so many seconds.

        API servers issue none for less than ten minutes; so it is signed here, with their key.
        """
        ends = int(time.time() + life_s - LEEWAY_S)
        begins = min(int(time.time()), ends) - 3600
        account = {"namespace": NAMESPACE, "serviceaccount": {"name": USER, "uid": self._uid}}
        claims = {
            "iss": ISSUER,
            "aud": [ISSUER],
            "sub": f"system:serviceaccount:{NAMESPACE}:{USER}",
            "iat": begins,
            "nbf": begins,
            "exp": ends,
            "kubernetes.io": account,
        }
        draft = self._token.with_name(f"{self._token.name}.draft")
        draft.touch(mode=0o600)
        draft.write_text(_signed(claims, self._plane.directory / "pki" / "service-account.key"))
        draft.replace(self._token)


def _signed(claims: dict[str, Any], key_file: Path) -> str:
    """Return a JSON Web Token, signed by ES256."""
    key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    text = ".".join(_encoded(json.dumps(part).encode()) for part in ({"alg": "ES256", "typ": "JWT"}, claims))
    r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{text}.{_encoded(r.to_bytes(32) + s.to_bytes(32))}"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

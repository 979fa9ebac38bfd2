"""The keys and certificates of one control plane, created and deleted with it.

A folder gets PEM files: the authority, certificates that it signed for servers and clients, and the key that signs service
account tokens. Keys use the P-256 curve, because it takes 1 ms to generate such a key, but 100 ms to generate an RSA key. The
authority's key is RSA, as in kubeadm. For every request the API server verifies a signature made with the authority's key. This
takes 20 us with RSA but 150 us with P-256, a tenth of the time to create a pod. The folder must be private to the user.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hack.control_plane.build.commands import ControlPlaneError

VALIDITY = dt.timedelta(days=365)
BACKDATING = dt.timedelta(hours=1)  # certificates stay valid if the clock is set back a little
COMMON_NAME_LIMIT = 64  # X.509's limit, and therefore that of a user name

SERVER_NAMES = (
    "localhost",
    *("kubernetes" + end for end in ("", ".default", ".default.svc", ".default.svc.cluster.local")),
)


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and its private key, both as paths of PEM files."""

    certificate: Path
    key: Path

    @classmethod
    def of(cls, folder: Path, file: str) -> Credential:
        """Return the credential with this name in a folder."""
        return cls(folder / f"{file}.crt", folder / f"{file}.key")


class Authority:
    """The certificate authority of a control plane; its certificate is in `folder`."""

    def __init__(self, folder: Path, key: rsa.RSAPrivateKey, name: x509.Name) -> None:
        """Use `make`."""
        self._folder = folder
        self._key = key
        self._name = name
        self.certificate = folder / "ca.crt"

    @classmethod
    def make(cls, folder: Path) -> Authority:
        """Create an authority in a folder."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        made = cls(folder, key, _name("tfjob-control-plane-ca"))
        encrypts = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
        no = dict.fromkeys((*encrypts, "encipher_only", "decipher_only"), False)
        usage = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **no)
        builder = made._builder(made._name, key.public_key(), VALIDITY)
        for extension, critical in (
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (usage, True),
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        ):
            builder = builder.add_extension(extension, critical=critical)
        made._sign("ca", key, builder)
        return made

    def server(self, file: str, addresses: Sequence[str], *, life: dt.timedelta = VALIDITY) -> Credential:
        """Issue a serving certificate that is valid for these addresses and for the names of the API server.

        The certificate replaces an earlier one with the same `file`. It is also a client certificate, because etcd's JSON
        gateway calls etcd with the server's certificate.
        """
        names = [x509.DNSName(name) for name in SERVER_NAMES]
        places = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(file, _name(file), usages, life, x509.SubjectAlternativeName([*names, *places]))

    def client(self, file: str, user: str, groups: Sequence[str] = (), *, life: dt.timedelta = VALIDITY) -> Credential:
        """Issue a certificate for this user in these groups. Raises ControlPlaneError if the name is empty or too long."""
        if not 0 < len(user) <= COMMON_NAME_LIMIT:
            raise ControlPlaneError(
                f"the name of a user must have 1 to {COMMON_NAME_LIMIT} characters to fit into a certificate: {user!r}"
            )
        return self._issue(file, _name(user, groups), [ExtendedKeyUsageOID.CLIENT_AUTH], life)

    def make_token_signer(self) -> None:
        """Create the key pair that signs service account tokens: service-account.key and .pub."""
        key = ec.generate_private_key(ec.SECP256R1())
        _write_key(self._folder / "service-account.key", key)
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        public = key.public_key().public_bytes(serialization.Encoding.PEM, form)
        write_private(self._folder / "service-account.pub", public)

    def _issue(
        self,
        file: str,
        name: x509.Name,
        usages: list[x509.ObjectIdentifier],
        life: dt.timedelta,
        *extensions: x509.ExtensionType,
    ) -> Credential:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = self._builder(name, key.public_key(), life)
        # Python 3.13 rejects a certificate without an authority key identifier.
        for extension in (x509.ExtendedKeyUsage(usages), issuer, *extensions):
            builder = builder.add_extension(extension, critical=False)
        return self._sign(file, key, builder)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey, life: dt.timedelta
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
        return builder.not_valid_before(now - BACKDATING).not_valid_after(now + life)

    def _sign(
        self, file: str, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, builder: x509.CertificateBuilder
    ) -> Credential:
        made = Credential.of(self._folder, file)
        _write_key(made.key, key)
        write_private(
            made.certificate, builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        return made


def _name(common_name: str, groups: Sequence[str] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    form = serialization.PrivateFormat.TraditionalOpenSSL  # the format that every version of Kubernetes reads
    write_private(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, atomically by a rename."""
    draft = path.with_name(f"{path.name}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.rename(path)

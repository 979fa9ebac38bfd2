"""The keys and certificates of one control plane, which are made for it and deleted with it.

In: a folder. Out: PEM files in it: the authority, certificates that it signed for the servers and for any client, and the key
that signs service account tokens. Keys are on the P-256 curve: making one takes a millisecond, and a tenth of a second with
RSA. Only the authority's key is RSA, as kubeadm's is: the API server checks its signature in every request, which takes 20 us
with RSA, and would take 150 us on the curve, a tenth of creating a pod. The folder must be private to the user, since it holds
the authority's key.
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
BACKDATING = dt.timedelta(hours=1)  # a clock that is set back a little must not make the certificates invalid
COMMON_NAME_LIMIT = 64  # X.509's bound, and therefore that of a user's name

SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and its private key, both as paths of PEM files."""

    certificate: Path
    key: Path


class Authority:
    """The certificate authority of a control plane; invariant: its key and certificate are in `folder`."""

    def __init__(self, folder: Path) -> None:
        """Open the authority in a folder; it must have been made there."""
        self._folder = folder
        self._key = _load_key(folder / "ca.key")
        self.certificate = folder / "ca.crt"
        self._name = x509.load_pem_x509_certificate(self.certificate.read_bytes()).subject

    @classmethod
    def make(cls, folder: Path) -> Authority:
        """Make a new authority in a folder."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        name = _name("tfjob-control-plane-ca")
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            _builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        _write_key(folder / "ca.key", key)
        _write(folder / "ca.crt", _pem(builder.sign(key, hashes.SHA256())))
        return cls(folder)

    def server(self, file: str, addresses: Sequence[str], *, life: dt.timedelta = VALIDITY) -> Credential:
        """Issue a certificate for a server on these addresses and on the names of the API server.

        Whoever reads the files of one that was issued before finds the new one in them.
        It is a client's certificate as well: etcd's gateway from JSON to gRPC calls etcd itself with the server's certificate.
        """
        names = [x509.DNSName(name) for name in SERVER_NAMES]
        places = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(file, _name(file), usages, x509.SubjectAlternativeName([*names, *places]), life)

    def client(self, file: str, user: str, groups: Sequence[str] = (), *, life: dt.timedelta = VALIDITY) -> Credential:
        """Issue a certificate for this user in these groups. Raises ControlPlaneError if the name is empty or too long."""
        if not 0 < len(user) <= COMMON_NAME_LIMIT:
            raise ControlPlaneError(
                f"a user's name must have 1 to {COMMON_NAME_LIMIT} characters to fit into a certificate: {user!r}"
            )
        return self._issue(file, _name(user, groups), [ExtendedKeyUsageOID.CLIENT_AUTH], None, life)

    def token_signer(self) -> Credential:
        """Make the key that signs service account tokens; its "certificate" is only the public key."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = Credential(self._folder / "service-account.pub", self._folder / "service-account.key")
        _write_key(made.key, key)
        public = key.public_key()
        encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        _write(made.certificate, public.public_bytes(encoding, form))
        return made

    def _issue(
        self,
        file: str,
        name: x509.Name,
        usages: list[x509.ObjectIdentifier],
        alternatives: x509.SubjectAlternativeName | None,
        life: dt.timedelta,
    ) -> Credential:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(name, self._name, key.public_key(), life)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(issuer, critical=False)  # Python 3.13 refuses a certificate without it
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        made = Credential(self._folder / f"{file}.crt", self._folder / f"{file}.key")
        _write_key(made.key, key)
        _write(made.certificate, _pem(builder.sign(self._key, hashes.SHA256())))
        return made


def self_signed(folder: Path, file: str) -> Credential:
    """Make a certificate that no authority signs, as a kubelet serves with unless it is told otherwise."""
    key, name = ec.generate_private_key(ec.SECP256R1()), _name(file)
    made = Credential(folder / f"{file}.crt", folder / f"{file}.key")
    _write_key(made.key, key)
    _write(made.certificate, _pem(_builder(name, name, key.public_key()).sign(key, hashes.SHA256())))
    return made


def _name(common_name: str, groups: Sequence[str] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    life: dt.timedelta = VALIDITY,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATING)
        .not_valid_after(now + life)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _load_key(path: Path) -> rsa.RSAPrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ControlPlaneError(f"{path} is not a key of this control plane")
    return key


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    form = serialization.PrivateFormat.TraditionalOpenSSL  # the form that every Kubernetes reads
    _write(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def _write(path: Path, content: bytes) -> None:
    draft = path.with_name(f"{path.name}.draft")  # renamed, so that a server that reads it again never sees half of it
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.rename(path)

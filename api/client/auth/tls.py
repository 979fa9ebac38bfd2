"""How a server is verified, and how a client certificate is presented to it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Trust:
    """Which servers are trusted: those that `authority` (PEM) signed, or without one those that the system trusts.

    `verify` False trusts every server, as `insecure-skip-tls-verify` asks for.
    """

    authority: str | None = None
    verify: bool = True

    def context(self, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
        """Make a context, with a client certificate if one is given (`key` may be in the same file).

        Reads files, so it blocks. Raises OSError (of which ssl.SSLError is one) when a file is missing or malformed.
        """
        context = ssl.create_default_context(cadata=self.authority)
        # Python 3.13 asks of an authority what many that kubeadm made do not have, and what no other client asks of them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            # An encrypted key would make OpenSSL ask for its password on the terminal; an empty one makes it fail.
            context.load_cert_chain(certificate, key, password="")
        return context

    def context_from_pem(self, certificate: str, key: str) -> ssl.SSLContext:
        """`context` for a client certificate that is not in a file. OpenSSL reads files only, so it is in one for a moment."""
        from tempfile import TemporaryDirectory  # with bz2 and lzma half a megabyte, and a pod has no such certificate

        with TemporaryDirectory(prefix="tfjob-operator-") as private:  # only its owner may enter
            certificate_file, key_file = Path(private, "cert"), Path(private, "key")
            certificate_file.write_text(certificate)
            key_file.write_text(key)
            return self.context(certificate_file, key_file)

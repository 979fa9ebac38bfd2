"""Users who are named in headers by a proxy, which shows a client certificate; and the flags of the page in a cluster."""

import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from hack.control_plane.run.pki import Authority
from hack.page_cluster import PageCluster
from tfjob_operator.cli.page.__main__ import Certificate, command
from tfjob_operator.cli.page.cluster_authenticator import RequestHeaders
from unit.cli.page.browser import a_cluster_page

PROXIES = RequestHeaders(frozenset({"front-proxy"}), username=("X-Remote-User", "X-Other-User"))


async def test_only_a_named_proxy_names_users(page_cluster: PageCluster, tmp_path: Path) -> None:
    """By a certificate of the authority with a name that is expected; a header of anybody else is refused, not overlooked."""
    page_cluster.tokens["token-of-ann"] = ("ann", ())
    page_cluster.grant("system:authenticated", resources="tfjobs", verbs="get")
    page_cluster.put("tfjobs", {"metadata": {"name": "mnist", "namespace": "team"}, "spec": {}})
    authority = Authority.make(tmp_path)
    server = authority.server("page", ["127.0.0.1"])
    files = Certificate(server.certificate, server.key, authority.certificate)
    async with a_cluster_page(page_cluster, certificate=files, proxies=PROXIES) as browser:

        async def code(headers: Mapping[str, str], client: str = "") -> int:
            context = ssl.create_default_context(cafile=str(authority.certificate))
            if client:
                shown = authority.client(client, client)
                context.load_cert_chain(shown.certificate, shown.key)
            path = f"{browser.home}/-/manifest/team/mnist"
            async with browser.http.get(path, headers=headers, ssl=context) as response:
                return response.status

        ann = {"X-Remote-User": "ann"}
        assert await code(ann) == 403
        assert await code(ann, "another-proxy") == 403
        assert await code({"Authorization": "Bearer token-of-ann", **ann}) == 403
        assert await code({}, "front-proxy") == 401
        assert await code(ann, "front-proxy") == 200
        assert await code({"X-Other-User": "ben"}, "front-proxy") == 200
        groups = {"X-Remote-Group": "a,b", "X-Remote-Extra-Acme.com%2Fproject": "p"}
        assert await code({"X-Remote-User": "cid", **groups}, "front-proxy") == 200
        assert await code({"Authorization": "Bearer token-of-ann"}, "front-proxy") == 403
    assert {each[0] for each in page_cluster.reviews if len(each) > 1} == {"ann", "ben", "cid"}
    assert page_cluster.subjects["cid"] == (["a,b", "system:authenticated"], {"acme.com/project": ["p"]})


FLAGS = {
    "--tls-cert-file=x": "--tls-cert-file and --tls-private-key-file must be used together",
    "--requestheader-client-ca-file=x": "--requestheader-client-ca-file requires --tls-cert-file",
    "--requestheader-allowed-names=x": "--requestheader-client-ca-file and --requestheader-allowed-names must be used together",
    "--bind-address=203.0.113.1": "cannot listen on 203.0.113.1:0: ",
}


@pytest.mark.parametrize("flags", FLAGS)
def test_flags_that_do_not_belong_together_are_refused(flags: str) -> None:
    """An authority without names would let any of its certificates name users."""
    result = CliRunner().invoke(command, [flags, "--port=0"])
    assert result.exit_code == 1
    assert FLAGS[flags] in result.output


def test_a_certificate_that_cannot_be_used_is_said(page_cluster: PageCluster, tmp_path: Path) -> None:
    """In one line, before anything is served."""
    (tmp_path / "x").write_text("no certificate")
    flags = [f"--tls-cert-file={tmp_path / 'x'}", f"--tls-private-key-file={tmp_path / 'x'}", "--port=0"]
    result = CliRunner().invoke(command, [*flags, f"--kubeconfig={page_cluster.kubeconfig}"])
    assert result.exit_code == 1
    assert "error: cannot load the certificate of the page" in result.output

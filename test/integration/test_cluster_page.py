"""The dashboard as an addon, on a real API server with its own account: what each viewer sees, and the permissions it uses."""

import asyncio
import contextlib
import json
import signal
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.control_plane import ControlPlane
from hack.objects import TEMPLATE, a_job, a_pod, a_tensorflow_job
from hack.page_cluster import ADDON, page_of
from integration.audit import AuditLog, Fact, allowed, lists_to_fall_back_on
from integration.operator_process import ROOT, with_token
from integration.pages import Page
from support.waiting import eventually
from tfjob_operator.cli.page import cluster as cluster_
from tfjob_operator.cli.page.reviews import ALLOWED_TTL_S
from unit.cli.page.browser import a_page, rows_of, take, until_known

ADDONS = ROOT / "manifests" / "addons"
ACCOUNT = "system:serviceaccount:kubeflow:tf-job-page"
TEAMS = ("team-a", "team-b")
SLICE = "tfjobs.kubeflow.org"
FIRST = "tfjobs.tensorflow.org"


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> AuditLog:
    """The requests of the page's account."""
    return AuditLog(tmp_path_factory.mktemp("audit"), ACCOUNT)


@pytest.fixture(scope="module")
def plane(audit: AuditLog) -> Iterator[ControlPlane]:
    """An API server with the addon as users apply it, and a job in each of two namespaces, with the pod of a replica."""
    with ControlPlane.start("page", extra_apiserver_args=audit.flags) as plane:
        plane.run_kubectl("create", "namespace", "kubeflow")
        plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "base" / "crd.yaml"))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        plane.run_kubectl("apply", "--server-side", "-k", str(ADDONS / "page"))
        for team in TEAMS:
            plane.create_namespace(team)
            create(
                plane,
                a_job(namespace=team),
                a_pod("mnist", namespace=team, ownerReferences=[]) | {"spec": TEMPLATE["spec"], "status": {}},
            )
        yield plane


def create(plane: ControlPlane, *items: dict[str, Any]) -> None:
    plane.run_kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def install_first_api(plane: ControlPlane) -> None:
    plane.run_kubectl("apply", "--server-side", "-f", str(ADDONS / "alpha" / "crd.yaml"))
    plane.wait_for_crd(FIRST)


class ClusterPage(Page):
    """A page as a browser of somebody sees it, who has a token."""

    def ask(self, path: str, token: str = "", **headers: str) -> tuple[int, str]:
        try:
            with self.open(path, **({"Authorization": f"Bearer {token}"} if token else {}), **headers) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def lists(self, token: str) -> Iterator[set[str]]:
        """Yield the keys of the jobs that a stream shows, each time that they change. The stream may end."""
        known: dict[str, Any] = {}
        for kind, data in self.news(Authorization=f"Bearer {token}"):
            if kind == "rows":
                take(known, data)
                if known[""]["synced"]:
                    yield {*known} - {""}


@contextlib.contextmanager
def page(plane: ControlPlane, folder: Path, *flags: str) -> Iterator[ClusterPage]:
    """Run the page with a token of its account, as its Deployment does."""
    kubeconfig = with_token(plane, plane.request_token("kubeflow", "tf-job-page"), folder)
    with page_of(kubeconfig, *ADDON, *flags) as (process, address):
        found = ClusterPage(address)
        eventually(lambda: found.ask("/readyz")[0] == 200, "the page has read all jobs")
        yield found
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
        assert (process.returncode, said) == (0, "")


class Viewer:
    """A service account with rights that are given to it in single namespaces, and a token that the API server made."""

    def __init__(self, plane: ControlPlane, namespace: str, name: str) -> None:
        self._plane = plane
        self.name = f"system:serviceaccount:{namespace}:{name}"
        plane.run_kubectl("create", "serviceaccount", name, "-n", namespace)
        self.token = eventually(lambda: plane.request_token(namespace, name), "the account has a token")

    def bind(self, namespace: str, *rights: tuple[str, str, *tuple[str, ...]]) -> None:
        """Give verbs over resources, or over those of these names, in a namespace; "" for all."""
        kind, name = "" if namespace else "Cluster", self.name.rpartition(":")[2]
        rules = [
            {"apiGroups": [group], "resources": [plural], "verbs": verbs.split(","), "resourceNames": names}
            for verbs, resources, *names in rights
            for plural, _, group in (each.partition(".") for each in resources.split(","))
        ]
        api = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name, "namespace": namespace}}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{kind}Role", "name": name}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.name}
        binding = {"kind": f"{kind}RoleBinding", "roleRef": role, "subjects": [subject]}
        create(self._plane, api | {"kind": f"{kind}Role", "rules": rules}, api | binding)

    def may(self, verb: str, resource: str, namespace: str, *more: str) -> bool:
        question = ("auth", "can-i", verb, resource, "-n", namespace, f"--as={self.name}", *more)
        return self._plane.run_kubectl(*question, check=False).stdout.strip() == "yes"


READS = "get,list,watch"
ALL = ((READS, f"{SLICE},pods,events"), ("get", "pods/log"))


def test_a_viewer_sees_what_kubectl_shows_them(plane: ControlPlane, tmp_path: Path) -> None:
    """One namespace of two, and there no logs without the right to logs; one who may read everything sees both."""
    ann, ben, all_seeing = (Viewer(plane, "team-a", name) for name in ("ann", "ben", "all-seeing"))
    ann.bind("team-a", *ALL)
    ben.bind("team-b", ALL[0])
    all_seeing.bind("", *ALL)
    with page(plane, tmp_path) as shown:
        for viewer, lists in ((ann, {"team-a"}), (ben, {"team-b"}), (all_seeing, {*TEAMS})):
            assert next(shown.lists(viewer.token)) == {f"{team}/mnist" for team in lists}
            for team in TEAMS:
                assert viewer.may("list", SLICE, team) == (team in lists)
                for path, may in (
                    (f"manifest/{team}/mnist", viewer.may("get", SLICE, team)),
                    (f"log/{team}/mnist-worker-0", viewer.may("get", "pods", team, "--subresource=log")),
                    (f"explain/{team}/mnist", team in lists),
                ):
                    assert shown.ask(f"/-/{path}", viewer.token)[0] == (200 if may else 403), path
        body = json.loads(shown.ask("/-/manifest/team-b/mnist", ann.token)[1])
        denied = plane.run_kubectl("get", "tfjob", "mnist", "-n", "team-b", f"--as={ann.name}", check=False).stderr
        assert body["message"].rstrip() in denied


def test_nobody_gets_in_with_a_token_that_the_api_server_refuses(plane: ControlPlane, tmp_path: Path) -> None:
    """One that nobody signed, and one of an account that was deleted."""
    guest = Viewer(plane, "team-a", "guest")
    gone = Viewer(plane, "team-a", "gone")
    plane.run_kubectl("delete", "serviceaccount", "gone", "-n", "team-a")
    with page(plane, tmp_path) as shown:
        assert shown.ask("/", guest.token)[0] == 200
        for token in (guest.token[:-20], "nonsense", ""):
            assert shown.ask("/", token)[0] == 401
            assert shown.ask("/-/stream", token)[0] == 401
        eventually(lambda: shown.ask("/", gone.token)[0] == 401, "the deleted account is known no more", limit_s=120)
        assert shown.ask("/", X_Remote_User="admin", X_Remote_Group="system:masters")[0] == 401


def test_requests_within_20_s_cost_one_review_of_each_kind_and_a_withdrawn_right_ends_open_streams(
    plane: ControlPlane, audit: AuditLog, tmp_path: Path
) -> None:
    """By the API server's audit log. Nothing but the right changes, so the stream asks by itself."""
    viewer = Viewer(plane, "team-a", "one-of-many")
    viewer.bind("team-a", *ALL)

    def reviews() -> Counter[str]:
        return Counter(event["objectRef"]["resource"] for event in audit.events() if "objectRef" in event)

    with page(plane, tmp_path) as shown:
        before = reviews()
        began = time.monotonic()
        for _ in range(60):
            assert shown.ask("/-/manifest/team-a/mnist", viewer.token)[0] == 200
        periods = int((time.monotonic() - began) // ALLOWED_TTL_S) + 1
        asked = reviews() - before
        assert all(1 <= asked[kind] <= periods for kind in ("tokenreviews", "subjectaccessreviews")), asked
        seen = shown.lists(viewer.token)
        assert next(seen) == {"team-a/mnist"}
        plane.run_kubectl("delete", "rolebinding", "one-of-many", "-n", "team-a")
        withdrawn = time.monotonic()
        assert next(each for each in seen if not each) == set()
        assert time.monotonic() - withdrawn < 30


def test_every_right_of_the_page_is_used_and_none_is_missing(
    plane: ControlPlane, audit: AuditLog, tmp_path: Path
) -> None:
    """By the audit log: all that a viewer with every right can do."""
    install_first_api(plane)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    placed = a_pod("placed", namespace="team-b", ownerReferences=[]) | {
        "spec": TEMPLATE["spec"] | {"nodeName": "node-1", "volumes": [claim]},
        "status": {},
    }
    create(plane, a_job("placed", namespace="team-b"), placed, a_tensorflow_job(namespace="team-b"))
    viewer = Viewer(plane, "team-b", "busy")
    lists = "services,persistentvolumeclaims,resourcequotas,limitranges,jobs.batch,pods.metrics.k8s.io"
    viewer.bind("team-b", *ALL, (READS, FIRST), ("list", lists), ("get", "namespaces"))
    leases = "leases.coordination.k8s.io"
    viewer.bind("", ("get", "nodes"), ("list", "pods"), ("list", leases, "tf-operator"))
    may = allowed(ADDONS / "page" / "role.yaml", ADDONS / "page-base" / "reviews-role.yaml")
    with page(plane, tmp_path) as shown:
        wanted = {"team-b/mnist", "team-b/placed", "team-b/tfjob.tensorflow.org/old"}
        assert wanted in shown.lists(viewer.token)
        paths = {f"{each}/{key}" for each in ("manifest", "explain") for key in wanted}
        paths |= {f"{each}/team-b/mnist" for each in ("logs", "usage", "tensorboard")}
        for path in (*paths, "log/team-b/mnist-worker-0"):
            assert shown.ask(f"/-/{path}", viewer.token)[0] == 200, path
        diagnosis = json.loads(shown.ask("/-/explain/team-b/placed", viewer.token)[1])
        assert "claim-missing" in {cause["id"] for cause in diagnosis["causes"]}
        assert "nodes" not in diagnosis["unseen"]
    plane.run_kubectl("delete", "-n", "team-b", f"{SLICE}/placed", f"{FIRST}/old")  # other tests list what is there
    spare = lists_to_fall_back_on(plane, may)
    used = may - spare
    # A watch is logged at its end.
    eventually(lambda: used <= audit.asked() or audit.refused(), "rights are used", yet=lambda: used - audit.asked())
    assert audit.refused() == []
    assert audit.asked() | spare == may


async def test_jobs_of_the_first_api_come_with_its_crd_and_go_with_it(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the page runs. What is asked meanwhile does not fail, on a real API server."""
    monkeypatch.setattr(cluster_, "POLL_S", 0.2)
    monkeypatch.setattr(cluster_, "FIRST_RECHECK_S", 0.2)
    plane.run_kubectl("delete", "crd", FIRST, "--ignore-not-found")
    plane.create_namespace("old-team")
    key = "old-team/tfjob.tensorflow.org/old"
    async with a_page(plane, everywhere=True) as browser, browser.stream() as events:
        known = await rows_of(browser)
        assert key not in known
        assert known[""]["troubles"] == []
        await asyncio.to_thread(install_first_api, plane)
        await asyncio.to_thread(create, plane, a_tensorflow_job(namespace="old-team"))
        await until_known(events, known, lambda: key in known)
        assert (await browser.get(f"/-/manifest/{key}"))[0] == 200
        await asyncio.to_thread(plane.run_kubectl, "delete", "crd", FIRST)
        await until_known(events, known, lambda: key not in known)
        assert known[""]["troubles"] == []


def test_a_page_of_one_namespace_has_the_same_rights_there_and_no_others(plane: ControlPlane, tmp_path: Path) -> None:
    """But what is in no namespace. The two lists of rules are kept by hand; everything else of the other addon is the same."""
    everywhere, here = (allowed(ADDONS / folder / "role.yaml") for folder in ("page", "page-namespaced"))
    of_cluster = {Fact("", "nodes", "get"), Fact("coordination.k8s.io", "leases", "list")}
    assert everywhere == here | of_cluster
    assert not here & of_cluster
    assert Fact("", "pods/log", "get") in here
    built = plane.run_kubectl("kustomize", str(ADDONS / "page-namespaced")).stdout
    assert built.splitlines().count("kind: ClusterRole") == 1
    viewer = Viewer(plane, "team-a", "local")
    viewer.bind("team-a", *ALL)
    with page(plane, tmp_path, "--namespace=team-a") as shown:
        assert next(shown.lists(viewer.token)) == {"team-a/mnist"}

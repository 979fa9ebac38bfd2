"""What is asked of the API server about a viewer, and what its answers mean."""

import asyncio
from typing import Any, cast

import msgspec
import pytest
from pytest_mock import MockerFixture

from support.cases import for_each
from tfjob_operator.api.client.decoding import decode_response
from tfjob_operator.api.core import PODS
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.cli.commands.top_ import POD_METRICS
from tfjob_operator.cli.page.reviews import ReviewFailedError, Reviews, User
from tfjob_operator.cli.permissions import ResourceAttributes


class Server:
    """Answers reviews with `status`, and keeps what was asked."""

    def __init__(self, **status: Any) -> None:
        self.status = status
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def create(self, resource: Any, namespace: str, body: dict[str, Any], into: Any) -> Any:
        """Answer one."""
        assert namespace == ""
        self.asked.append((f"{resource.api_version} {body['kind']}", body["spec"]))
        return decode_response(msgspec.json.encode({**body, "status": self.status}), into, request="POST")

    def reviews(self, *audiences: str) -> Reviews:
        """Reviews by this server."""
        return Reviews(cast("Any", self), audiences)


ANN = {"username": "ann", "uid": "7", "groups": ["a", "b"], "extra": {"scopes": ["x", "y"]}}


async def test_a_token_is_somebodys_with_groups_and_extra() -> None:
    """All of it goes into the questions about rights: authorizers may look at any of it."""
    server = Server(authenticated=True, user=ANN)
    user = (await server.reviews().user("abc")).value
    assert user == User("ann", "7", ("a", "b"), (("scopes", ("x", "y")),))
    assert server.asked == [("authentication.k8s.io/v1 TokenReview", {"token": "abc"})]
    server = Server(allowed=True)
    assert (await server.reviews().may(user, ResourceAttributes("get", PODS, "team", "p", "log"))).value
    attributes = {
        "verb": "get",
        "version": "v1",
        "resource": "pods",
        "subresource": "log",
        "namespace": "team",
        "name": "p",
    }
    spec = {"user": "ann", "uid": "7", "groups": ("a", "b"), "extra": {"scopes": ("x", "y")}}
    kind = "authorization.k8s.io/v1 SubjectAccessReview"
    assert server.asked == [(kind, {**spec, "resourceAttributes": attributes})]


@for_each(
    "status",
    [
        {"error": "token expired"},
        {"authenticated": False, "user": ANN},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": ""}},
    ],
)
async def test_a_token_that_is_not_good_is_nobodys(status: dict[str, Any]) -> None:
    """Expired, unknown, or without a name: an API server would call whoever shows it anonymous."""
    assert (await Server(**status).reviews().user("abc")).value is None


async def test_a_token_is_good_only_for_the_audience_that_is_asked_for() -> None:
    """An authenticator that knows nothing of audiences returns none: such a token is one for the API server."""
    good = Server(authenticated=True, user=ANN, audiences=["page"])
    assert (await good.reviews("page", "other").user("abc")).value is not None
    assert good.asked[0][1] == {"token": "abc", "audiences": ["page", "other"]}
    for audiences in ([], ["api"]):
        server = Server(authenticated=True, user=ANN, audiences=audiences)
        assert (await server.reviews("page").user("abc")).value is None


@for_each("token", ["", "a b", "a,b", "ü", "a\nb", "x" * 20_000])
async def test_what_is_no_token_is_not_sent_to_the_server(token: str) -> None:
    """RFC 6750."""
    server = Server(authenticated=True, user=ANN)
    assert (await server.reviews().user(token)).value is None
    assert server.asked == []


async def test_a_right_that_is_denied_is_none() -> None:
    """Also where an authorizer says both."""
    for status in (
        {"allowed": False},
        {"allowed": False, "evaluationError": "no role"},
        {"allowed": True, "denied": True},
    ):
        assert not (await Server(**status).reviews().may(User("ann"), ResourceAttributes("list", TFJOBS))).value


async def test_an_answer_without_a_decision_is_none() -> None:
    """It is neither yes nor no, and nothing is kept of it."""
    server = Server()
    reviews = server.reviews()
    with pytest.raises(ReviewFailedError):
        await reviews.may(User("ann"), ResourceAttributes("list", TFJOBS))
    server.status = {"allowed": True}
    assert (await reviews.may(User("ann"), ResourceAttributes("list", TFJOBS))).value


async def test_reviews_of_tokens_and_of_rights_end_when_they_are_closed(mocker: MockerFixture) -> None:
    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    server = Server()
    mocker.patch.object(server, "create", hang)
    reviews = server.reviews()
    asked = [reviews.user("abc"), reviews.may(User("ann"), ResourceAttributes("get", PODS))]
    tasks = [asyncio.create_task(each) for each in asked]
    await asyncio.sleep(0)
    await reviews.close()
    await asyncio.wait(tasks, timeout=1)
    assert all(task.cancelled() for task in tasks)


def test_a_refusal_reads_like_the_api_servers() -> None:
    """Users know these words, and administrators search for them."""
    assert ResourceAttributes("list", TFJOBS).refusal("ann") == (
        'tfjobs.kubeflow.org is forbidden: User "ann" cannot list resource "tfjobs" in API group "kubeflow.org" '
        "at the cluster scope"
    )
    assert ResourceAttributes("get", PODS, "team", "p", "log").refusal("ann") == (
        'pods "p" is forbidden: User "ann" cannot get resource "pods/log" in API group "" in the namespace "team"'
    )


def test_a_permission_covers_its_own_read_or_that_of_any_name_and_no_other() -> None:
    """The API group, the subresource, the verb and the namespace count, too. Without a limit all is left to the API server."""
    read = ResourceAttributes("get", PODS, "team", "p", "log")
    for granted in (read, read._replace(name="")):
        assert read.is_granted(frozenset({granted}))
    others = [
        read._replace(resource=POD_METRICS),
        read._replace(subresource=""),
        read._replace(verb="list", name=""),
        read._replace(namespace="other"),
        read._replace(namespace=""),
        read._replace(name="q"),
    ]
    assert not read.is_granted(frozenset(others))
    assert not read._replace(name="").is_granted(frozenset({read}))
    assert not read.is_granted(frozenset())
    assert read.is_granted(None)

"""What a node reports to an import: what it has, without what its policy forbids to manage."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ccm_agent.app import App
from ccm_agent.app_import import find_host_resources
from ccm_agent.model.errors import CommandError, UsageError
from ccm_agent.model.ports import TreeEntry
from ccm_agent.model.records.host_import import FILE_BYTES, FoundContent, HostResources, LeftOutResource
from ccm_agent.model.records.policy import Principal
from ccm_agent.policy.document import parse_policy
from ccm_agent.policy.grant import Grant
from ccm_agent.policy.ruling import rule_on
from ccm_agent.resources.container import TYPE as CONTAINER
from ccm_agent.resources.contract import ProviderSpec, ResourceContext, ResourceType
from ccm_agent.resources.existing import ExistingResource, ExistingResources
from ccm_agent.resources.package import TYPE as PACKAGE
from ccm_agent.resources.service import TYPE as SERVICE
from tests.support.engine import bench


class Asked:
    """A provider that finds what a test says, and counts how often it is asked."""

    def __init__(self, *found: ExistingResource | LeftOutResource | Exception) -> None:
        self.found = found
        self.count = 0

    def spec(self) -> ProviderSpec:
        return ProviderSpec(name="fake", make=lambda _context: None, find_existing=self.find)

    async def find(self, context: ResourceContext, argument: str) -> ExistingResources:
        self.count += 1
        resources, left_out = [], []
        for one in self.found:
            if isinstance(one, Exception):
                raise one
            if isinstance(one, LeftOutResource):
                left_out.append(one)
            else:
                resources.append(one)
        return ExistingResources(resources=tuple(resources), left_out=tuple(left_out))


def a_resource(name: str, **properties: Any) -> ExistingResource:
    return ExistingResource(name=name, properties={"ensure": "present"} | properties)


def granted(forbid: str) -> Grant | None:
    """What an operator may import under a policy."""
    policy = parse_policy(
        f"default: allow\nforbid: {forbid}\n".encode(),
        "policy.yaml",
        ["package", "service", "exec", "container"],
    )
    return rule_on(policy, Principal(name="ann"), "import", "", datetime(2026, 1, 1, tzinfo=UTC)).grant


async def found_by(
    packages: Asked, services: Asked, grant: Grant | None = None, contents: Sequence[str] = ()
) -> HostResources:
    kinds = (replace(PACKAGE, providers=(packages.spec(),)), replace(SERVICE, providers=(services.spec(),)))
    return await found_in(kinds, grant, contents)


async def found_in(
    kinds: Sequence[ResourceType[Any, Any]], grant: Grant | None, contents: Sequence[str] = ()
) -> HostResources:
    engine_bench = bench(*kinds)
    engine = engine_bench.engine
    app = cast("App", cast("Any", SimpleNamespace(engine=lambda: engine, catalog=engine.deps.catalog)))
    options = replace(engine_bench.options(), grant=grant)
    return await find_host_resources(app, [kind.name for kind in kinds], options, contents)


def names(found: HostResources) -> list[str]:
    return [f"{one.type}#{one.name}" for one in found.resources]


PACKAGES = a_resource("nginx"), a_resource("sudo")
SERVICES = (a_resource("nginx", ensure="running", enable=True),)


async def test_all_is_reported_without_a_policy() -> None:
    found = await found_by(Asked(*PACKAGES), Asked(*SERVICES))

    assert names(found) == ["package#nginx", "package#sudo", "service#nginx"]
    assert found.left_out == []


@pytest.mark.parametrize(
    ("grant", "left", "left_out", "asked"),
    [
        (granted("{types: [package]}"), ["service#nginx"], [("package", "*")], 0),
        (granted("{packages: [sudo]}"), ["package#nginx", "service#nginx"], [("package", "sudo")], 1),
        (granted("{services: [nginx]}"), ["package#nginx", "package#sudo"], [("service", "nginx")], 1),
        (granted("{types: [exec]}"), ["package#nginx", "package#sudo", "service#nginx"], [], 1),
    ],
    ids=["a type", "a package", "a service", "control"],
)
async def test_what_the_policy_forbids_is_named_and_a_forbidden_type_is_not_looked_at(
    grant: Grant | None, left: list[str], left_out: list[tuple[str, str]], asked: int
) -> None:
    packages = Asked(*PACKAGES)

    found = await found_by(packages, Asked(*SERVICES), grant)

    assert (names(found), packages.count) == (left, asked)
    assert [(one.type, one.name) for one in found.left_out] == left_out
    assert all("of the node's policy does not allow" in one.reason for one in found.left_out)


@pytest.mark.parametrize(
    ("forbid", "is_kept"),
    [
        ("{paths: [/etc/containers/systemd/web.container]}", False),
        ("{paths: [/etc/containers/systemd/web.env]}", False),
        ("{sources: [/etc/containers/systemd/web.container]}", False),
        ("{sources: [/etc/containers/systemd/web.env]}", False),
        ("{sources: [/srv/more.env]}", False),
        ("{paths: [/srv/www/private]}", False),
        ("{services: [web]}", False),
        ("{paths: [/etc/containers/systemd/db.container], sources: [/etc/shadow], services: [db]}", True),
    ],
)
async def test_a_container_is_reported_only_if_its_files_may_be_written_and_read(
    forbid: str, is_kept: bool
) -> None:
    web = a_resource(
        "web",
        ensure="running",
        image=f"docker.io/library/nginx@sha256:{'ab' * 32}",
        environment=["LEVEL=info"],
        environment_files=["/srv/more.env"],
        volumes=["/srv/www:/srv"],
    )

    found = await found_in((replace(CONTAINER, providers=(Asked(web).spec(),)),), granted(forbid))

    assert names(found) == ["container#web"] * is_kept
    assert [(one.type, one.name) for one in found.left_out] == [("container", "web")] * (not is_kept)
    assert all("of the node's policy does not allow" in one.reason for one in found.left_out)


@pytest.mark.parametrize(
    ("forbid", "is_shown"),
    [
        ("{paths: [/etc/containers/systemd/web.container]}", False),
        ('{paths: ["/etc/containers/**"]}', False),
        ("{sources: [/etc/containers/systemd/web.container]}", False),
        ("{services: [web]}", False),
        ("{paths: [/etc/containers/systemd/db.container], services: [db]}", True),
    ],
)
async def test_why_a_container_is_left_out_is_shown_only_if_its_files_may_be_written_and_read(
    forbid: str, is_shown: bool
) -> None:
    reason = "its image `registry.example/inside:1` has no digest, so its content may change"
    web = LeftOutResource(type="container", name="web", reason=reason)

    found = await found_in((replace(CONTAINER, providers=(Asked(web).spec(),)),), granted(forbid))

    [one] = found.left_out
    assert (one.type, one.name, one.reason == reason) == ("container", "web", is_shown)
    assert is_shown or "of the node's policy does not allow" in one.reason


async def test_type_that_cannot_be_read_is_named_and_the_others_are_reported() -> None:
    found = await found_by(Asked(CommandError("no apt here")), Asked(*SERVICES))

    assert names(found) == ["service#nginx"]
    assert found.left_out == [LeftOutResource(type="package", name="*", reason="no apt here")]


async def test_names_that_are_no_text_are_left_out() -> None:
    found = await found_by(Asked(a_resource("b\udcff")), Asked(*SERVICES))

    assert names(found) == ["service#nginx"]
    assert [(one.name, one.reason) for one in found.left_out] == [("b\ufffd", "is not UTF-8 text")]


CONTENT = ExistingResource(name="/etc/a", properties={}, content=b"one")
TREE = ExistingResource(
    name="/srv",
    properties={},
    tree=(
        TreeEntry(path="bin", kind="directory"),
        TreeEntry(path="bin/run", content=b"two", mode=0o755),
        TreeEntry(path="large", content=b"x" * (FILE_BYTES + 1)),
    ),
)


async def test_contents_are_named_by_digests_and_sent_by_them() -> None:
    asked = Asked(CONTENT, TREE)
    one, two = (hashlib.sha256(content).hexdigest() for content in (b"one", b"two"))
    unknown = hashlib.sha256(b"other").hexdigest()

    found = await found_by(asked, Asked())
    sent = await found_by(asked, Asked(), contents=[two, unknown])

    assert {each.name: each.contents for each in found.resources} == {
        "/etc/a": (FoundContent(sha256=one, size_bytes=3),),
        "/srv": (
            FoundContent(path="bin"),
            FoundContent(path="bin/run", sha256=two, size_bytes=3, is_program=True),
        ),
    }
    assert found.contents == {}
    assert found.left_out == [
        LeftOutResource(type="package", name="/srv/large", reason="is larger than 1 MiB")
    ]
    assert sent == HostResources(contents={two: b"two"})


async def test_more_than_one_answer_holds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccm_agent.app_import.HOST_BYTES", 3)
    assert len((await found_by(Asked(CONTENT), Asked())).resources) == 1

    with pytest.raises(UsageError, match="2 files with 1 MiB are too many"):
        await found_by(Asked(CONTENT, TREE), Asked())

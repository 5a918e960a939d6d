"""Which of the resources that nodes report may be in a site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ccm_agent.model.errors import InputError
from ccm_agent.model.records.host_import import (
    FILE_BYTES,
    HOST_BYTES,
    RESOURCES_LIMIT,
    FoundContent,
    FoundResource,
    HostResources,
    LeftOutResource,
)
from ccm_ctl.commands.runs.import_ import PropertyCheck
from ccm_ctl.fleet.imports.accepted import accept_resources

TYPES = ("cron", "user", "sysctl")
TEMPLATE = "has text that would be read as a template"


def a_job(name: str = "job", **properties: Any) -> FoundResource:
    return FoundResource(
        type="cron",
        name=name,
        properties={"schedule": "@daily", "user": "root", "command": "/bin/x"} | properties,
    )


def accepted(*resources: FoundResource) -> tuple[list[FoundResource], list[LeftOutResource]]:
    return accept_resources(HostResources(resources=list(resources)), TYPES, PropertyCheck())


def test_genuine_resources_are_accepted() -> None:
    user = FoundResource(type="user", name="ann", properties={"uid": 1500, "groups": ["a"]})

    assert accepted(a_job(), user) == ([a_job(), user], [])


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (a_job(command="/bin/x {{ Facts.x }}"), TEMPLATE),
        (a_job(command="/bin/x ${ lookup('facts.x') }"), TEMPLATE),
        (a_job("{{ item }}"), TEMPLATE),
        (a_job(environment=["A={{ x }}"]), TEMPLATE),
        (a_job("a\nb"), "has a name that manifests do not allow"),
        (a_job(""), "has a name that manifests do not allow"),
        (a_job("x" * 2000), "has a name that manifests do not allow"),
        (a_job("defaults"), "has a name that manifests do not allow"),
        (a_job(health_checks=[{"command": "/bin/evil"}]), "has `health_checks`, which is not imported"),
        (a_job(control={"if": "true"}), "has `control`, which is not imported"),
        (a_job(for_each=[1, 2]), "has `for_each`, which is not imported"),
        (FoundResource(type="cron", name="x", properties={"name": "y"}), "has `name`, which is not imported"),
        (a_job(nosuch=1), "unknown key `nosuch`"),
        (a_job(schedule=["x"]), "expected text, got a list"),
        (a_job(command="a\nb"), ""),
        (
            FoundResource(type="user", name="ann", properties={"uid": 10**400}),
            "has a number that is too large",
        ),
        (FoundResource(type="user", name="ann", properties={"uid": -5}), ""),
    ],
)
def test_hostile_resource_is_left_out_and_named_and_the_others_stay(
    hostile: FoundResource, reason: str
) -> None:
    resources, [left_out] = accepted(a_job("other"), hostile)

    assert resources == [a_job("other")]
    assert reason in left_out.reason
    assert left_out.reason.isprintable()
    assert left_out.name.isprintable()


def test_second_resource_of_a_name_is_left_out() -> None:
    resources, [left_out] = accepted(a_job(), a_job(user="mallory"))

    assert (resources, left_out.reason) == ([a_job()], "is reported twice")


def test_node_that_reports_another_type_is_refused() -> None:
    file = FoundResource(type="file", name="/etc/shadow", properties={"content": "x"})

    with pytest.raises(InputError, match="type file, which was not requested"):
        accepted(a_job(), file)


def test_node_that_reports_too_many_is_refused() -> None:
    with pytest.raises(InputError, match="at most 10000 are accepted"):
        accepted(*[a_job(str(number)) for number in range(RESOURCES_LIMIT + 1)])


def test_reason_of_a_node_is_one_short_line() -> None:
    told = LeftOutResource(type="user", name="a\x1b[2J\n", reason="x\ny" + "z" * 1000)

    _, [left_out] = accept_resources(HostResources(left_out=[told]), TYPES, _refuse_nothing)

    assert (left_out.name, len(left_out.reason)) == ("a\ufffd[2J\ufffd", 300)
    assert left_out.reason.isprintable()


def _refuse_nothing(_type_name: str, _properties: Mapping[str, Any]) -> None:
    """Accept everything."""


WORDS = (
    "repository",
    "file:/etc/app",
    "directory:/srv/www",
    "directory:/srv",
    "systemd_unit",
    "config:/etc/a.ini",
    "container",
)
PLAIN = {"ensure": "present", "owner": "root", "group": "root", "mode": "0644"}
DIGEST = "0f" * 32
ONE = FoundContent(sha256=DIGEST, size_bytes=3)
PLACE = "is not in a directory that was requested"
FORM = "has the wrong contents for its type"


def a_file(
    name: str = "/etc/app/x", *contents: FoundContent, needed_by: str = "", **more: Any
) -> FoundResource:
    return FoundResource(
        type="file", name=name, properties=PLAIN | more, needed_by=needed_by, contents=contents or (ONE,)
    )


def a_link(name: str, needed_by: str) -> FoundResource:
    return FoundResource(type="symlink", name=name, properties={"target": "x"}, needed_by=needed_by)


def a_tree(*contents: FoundContent, name: str = "/srv/www", **more: Any) -> FoundResource:
    return FoundResource(type="directory", name=name, properties={"owner": "root", **more}, contents=contents)


def a_unit(name: str = "a.service", *contents: FoundContent, **more: Any) -> FoundResource:
    return FoundResource(type="systemd_unit", name=name, properties=more, contents=contents or (ONE,))


def a_config(name: str = "/etc/a.ini", **more: Any) -> FoundResource:
    return FoundResource(type="config", name=name, properties={"values": {"main.debug": "no"}, **more})


def a_container(**more: Any) -> FoundResource:
    image = f"docker.io/library/nginx@sha256:{DIGEST}"
    return FoundResource(type="container", name="web", properties={"image": image, **more})


def entry(path: str, sha256: str = DIGEST) -> FoundContent:
    return FoundContent(path=path, sha256=sha256, size_bytes=3)


REPOSITORY = FoundResource(
    type="repository",
    name="own",
    properties={
        "uris": ["https://example.org/apt"],
        "suites": ["/"],
        "signed_by": "/usr/share/keyrings/own.asc",
    },
)


def judged(*resources: FoundResource) -> tuple[list[FoundResource], list[LeftOutResource]]:
    return accept_resources(HostResources(resources=list(resources)), WORDS, PropertyCheck())


def test_genuine_resources_with_contents_are_accepted() -> None:
    genuine = [
        a_file("/usr/share/keyrings/own.asc", needed_by="repository"),
        REPOSITORY,
        FoundResource(type="file", name="/etc/app", properties=PLAIN | {"ensure": "directory"}),
        a_file(),
        a_link("/etc/app/link", "file"),
        a_tree(entry("css", ""), entry("css/a.css"), entry("index.html"), file_mode="0644"),
        a_link("/srv/www/link", "directory"),
        a_unit(),
        a_unit("b.service.d/own.conf", unit="b.service", drop_in="own.conf"),
        a_config(),
        a_container(command=["serve"], environment=["LEVEL=info"], ports=["8080:80"], ensure="stopped"),
    ]

    assert judged(*genuine) == (genuine, [])


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (a_file("/etc/shadow"), PLACE),
        (a_file("/etc/app2"), PLACE),
        (a_file("/etc/app/../shadow"), "has a path that manifests do not allow"),
        (a_file("/etc/app//x"), "has a path that manifests do not allow"),
        (a_file("/etc/app/" + "x" * 256), "has a path that manifests do not allow"),
        (a_file("/etc/app/a\nb"), "has a name that manifests do not allow"),
        (a_file("/etc/app/{{ x }}"), TEMPLATE),
        (a_file("/etc/app/.git/config"), "has .git in its path"),
        (a_file("/etc/cron.d/evil", needed_by="repository"), PLACE),
        (a_file(source="/etc/shadow"), "has `source`, which is not imported"),
        (a_file(content="x"), "has `content`, which is not imported"),
        (a_file("/etc/app/x", entry("../y")), FORM),
        (a_file("/etc/app/x", ONE, ONE), FORM),
        (a_file("/etc/app/x", entry("", "")), FORM),
        (a_file("/etc/app/x", entry("", "../../etc/passwd")), "has no valid digest"),
        (a_file(ensure="directory"), FORM),
        (a_file(ensure="absent"), FORM),
        (FoundResource(type="file", name="/etc/app/x", properties=PLAIN), FORM),
        (a_link("/etc/other", "file"), PLACE),
        (a_link("/etc/other", "repository"), PLACE),
        (a_tree(entry("../../../x")), "has a path that manifests do not allow"),
        (a_tree(entry("/etc/x")), "has a path that manifests do not allow"),
        (a_tree(entry("")), "has a path that manifests do not allow"),
        (a_tree(entry("a"), entry("a/b")), "has conflicting entries"),
        (a_tree(entry("a"), entry("a")), "has conflicting entries"),
        (a_tree(entry("a"), name="/srv/other"), PLACE),
        (a_tree(entry("a"), purge=True), "has `purge`, which is not imported"),
        (a_unit("../../etc/a.service"), "has a path that manifests do not allow"),
        (a_unit(content="[Service]"), "has `content`, which is not imported"),
        (FoundResource(type="repository", name="x", properties={}, contents=(ONE,)), FORM),
        (a_config("/etc/shadow.ini"), PLACE),
        (a_config(validate="/bin/evil %s"), "has `validate`, which is not imported"),
        (a_config(path="/etc/passwd"), "has `path`, which is not imported"),
        (a_config(values={"a": "{{ x }}"}), TEMPLATE),
        (a_config(values={}), "set `key` and `value`, or `values`"),
        (a_container(image="docker.io/library/nginx:1"), "has no digest"),
        (
            a_container(image="docker.io/library/nginx:1", allow_tag=True),
            "has `allow_tag`, which is not imported",
        ),
        (a_container(subscribe=["file#/etc/a"]), "has `subscribe`, which is not imported"),
        (a_container(labels={"a": "${ x }"}), TEMPLATE),
    ],
)
def test_hostile_contents_are_left_out_and_the_others_stay(hostile: FoundResource, reason: str) -> None:
    resources, [left_out] = judged(a_file("/etc/app/other"), hostile)

    assert resources == [a_file("/etc/app/other")]
    assert reason in left_out.reason


def test_file_below_another_file_is_left_out() -> None:
    resources, [left_out] = judged(a_file("/etc/app/x"), a_file("/etc/app/x/y"))

    assert (resources, left_out.name) == ([a_file("/etc/app/x")], "/etc/app/x/y")
    assert left_out.reason == "is inside a reported file"


def test_type_that_no_requested_type_needs_is_an_error() -> None:
    for one in (
        a_file(needed_by="systemd_unit"),
        FoundResource(type="cron", name="x", properties={}, needed_by="file"),
    ):
        with pytest.raises(InputError, match="which was not requested"):
            judged(one)


def test_node_whose_contents_are_too_large_is_refused() -> None:
    def files(count: int) -> list[FoundResource]:
        large = FoundContent(sha256=DIGEST, size_bytes=FILE_BYTES)
        return [a_file(f"/etc/app/{number}", large) for number in range(count)]

    most = HOST_BYTES // FILE_BYTES
    assert len(judged(*files(most))[0]) == most
    with pytest.raises(InputError, match="at most 16 MiB are accepted"):
        judged(*files(most + 1))

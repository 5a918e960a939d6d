"""Which of the resources that nodes report may be in a site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ccm_agent.model.errors import InputError
from ccm_agent.model.records.host_import import RESOURCES_LIMIT, FoundResource, HostResources, LeftOutResource
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
        (a_job("a\nb"), "has a name that no manifest can have"),
        (a_job(""), "has a name that no manifest can have"),
        (a_job("x" * 2000), "has a name that no manifest can have"),
        (a_job("defaults"), "has a name that no manifest can have"),
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

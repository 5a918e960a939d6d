"""What brings a package back to the version that it had before."""

from __future__ import annotations

import pytest

from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.resources.package.model import PackageProperties, PackageState
from ccm_agent.resources.package.providers import apt, dnf
from ccm_agent.resources.package.resource import check, decide
from ccm_agent.resources.package.undo import earlier, identify


def debian(version: str) -> PackageState:
    return apt.state("zsh", ("zsh", version, "amd64", "installed") if version else None)


def red_hat(epoch: str, version: str, release: str) -> PackageState:
    return dnf.state("zsh", ("zsh", epoch, version, release, "x86_64"))


async def keep(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError("a package has no files to keep")


@pytest.mark.parametrize(
    ("found", "ensure"),
    [
        pytest.param(debian("2:5.9-4+b2"), "2:5.9-4+b2", id="apt version with epoch"),
        pytest.param(debian(""), "absent", id="apt package that was not installed"),
        pytest.param(red_hat("0", "5.9", "1.fc40"), "0:5.9-1.fc40", id="dnf version with its release"),
        pytest.param(red_hat("1", "5.9", "1.fc40"), "1:5.9-1.fc40", id="dnf version with epoch"),
        pytest.param(dnf.state("zsh", None), "absent", id="dnf package that was not installed"),
    ],
)
async def test_the_earlier_version_is_wanted_and_is_stable_once_it_is_there(
    found: PackageState, ensure: str
) -> None:
    before = await earlier(PackageProperties(name="zsh", ensure="latest"), found, Decision(), keep)

    assert (before.properties, before.why_not) == ({"ensure": ensure}, "")
    wanted = PackageProperties(name="zsh", ensure=ensure)
    check(wanted)
    assert decide(wanted, found, DecisionContext(noop=False)).steps == ()


@pytest.mark.parametrize(
    ("found", "now", "noop"),
    [
        (debian("1.0-1"), debian("1.0-2"), "Would have downgraded to 1.0-1"),
        (debian("1.0-2"), debian("1.0-1"), "Would have upgraded to 1.0-2"),
        (debian(""), debian("1.0-1"), "Would have uninstalled"),
        (debian("1.0-1"), debian(""), "Would have installed version 1.0-1"),
        (red_hat("0", "1.0", "1"), red_hat("0", "1.0", "2"), "Would have downgraded to 0:1.0-1"),
        (red_hat("0", "2.0", "1"), red_hat("1", "1.0", "1"), "Would have downgraded to 0:2.0-1"),
    ],
)
async def test_another_version_is_replaced_by_the_earlier_one(
    found: PackageState, now: PackageState, noop: str
) -> None:
    before = await earlier(PackageProperties(name="zsh"), found, Decision(), keep)

    wanted = PackageProperties(name="zsh", **before.properties)
    assert [step.noop for step in decide(wanted, now, DecisionContext(noop=True)).steps] == [noop]
    assert identify(found) != identify(now)


def test_a_release_and_an_epoch_are_part_of_the_identity() -> None:
    states = [
        red_hat("0", "1", "1"),
        red_hat("0", "1", "2"),
        red_hat("1", "1", "1"),
        debian("1-1"),
        debian(""),
    ]

    assert len({str(identify(one)) for one in states}) == len(states)

"""Every row of the package type's decision table, and every name it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.resources.checks import check_each
from ccm_agent.resources.contract import DecisionContext
from ccm_agent.resources.package.model import PackageMetadata, PackageProperties, PackageState
from ccm_agent.resources.package.resource import check, check_when_applied, decide, has_changed


def found(version: str, provider: str = "apt", **extended: str) -> PackageState:
    """A package as found; with dnf `version` is given as version-release."""
    bare = version.rpartition("-")[0] if provider == "dnf" and "-" in version else version
    metadata = PackageMetadata(name="zsh", version=version, provider=provider, extended=dict(extended))
    return PackageState(protocol="p", type="package", name="zsh", ensure=bare, metadata=metadata)


def verbs(ensure: str, state: PackageState, **context: Any) -> list[str]:
    """The noop texts of what is decided."""
    decision = decide(PackageProperties(name="zsh", ensure=ensure), state, DecisionContext(**context))
    assert decision.error is None
    return [step.noop for step in decision.steps]


@pytest.mark.parametrize(
    ("ensure", "version", "steps"),
    [
        pytest.param("present", "5.9-8", [], id="present and installed"),
        pytest.param("present", "absent", ["Would have installed version present"], id="present and absent"),
        pytest.param("absent", "absent", [], id="absent and absent"),
        pytest.param("absent", "5.9-8", ["Would have uninstalled"], id="absent and installed"),
        pytest.param("latest", "absent", ["Would have installed latest"], id="latest and absent"),
        pytest.param(
            "latest", "5.9-8", ["Would have upgraded to latest"], id="latest and installed is always asked"
        ),
        pytest.param("5.9-8", "5.9-8", [], id="the same version"),
        pytest.param("5.9-8", "5.9-7", ["Would have upgraded to 5.9-8"], id="an older version"),
        pytest.param("5.9-8", "5.10-1", ["Would have downgraded to 5.9-8"], id="a newer version"),
        pytest.param("5.9-8", "absent", ["Would have installed version 5.9-8"], id="a version and absent"),
        pytest.param("1.0-1", "0:1.0-1", [], id="an epoch of nought is none"),
        pytest.param("1.0", "1.0~rc1", ["Would have upgraded to 1.0"], id="a tilde sorts before the end"),
    ],
)
def test_apt_decides(ensure: str, version: str, steps: list[str]) -> None:
    assert verbs(ensure, found(version)) == steps


@pytest.mark.parametrize(
    ("ensure", "version", "epoch", "steps"),
    [
        pytest.param("1.0", "1.0-1", "0", [], id="without a release any will do"),
        pytest.param("1.0-1", "1.0-1", "0", [], id="version and release"),
        pytest.param("1.0-2", "1.0-1", "0", ["Would have upgraded to 1.0-2"], id="a newer release"),
        pytest.param("1:1.5", "1.5-1", "1", [], id="an epoch that is there"),
        pytest.param("1:1.0", "3.0-1", "0", ["Would have upgraded to 1:1.0"], id="an epoch beats a version"),
        pytest.param("0:3.0", "1.5-1", "1", ["Would have downgraded to 0:3.0"], id="a lower epoch"),
        pytest.param(
            "1.0", "1.0~rc1-1", "0", ["Would have upgraded to 1.0"], id="a tilde sorts before the end"
        ),
        pytest.param("absent", "absent", "0", [], id="absent"),
    ],
)
def test_dnf_decides(ensure: str, version: str, epoch: str, steps: list[str]) -> None:
    assert verbs(ensure, found(version, "dnf", epoch=epoch)) == steps


def test_after_asking_for_the_latest_only_absence_is_a_failure() -> None:
    assert verbs("latest", found("5.9-8"), verifying=True) == []
    assert verbs("latest", found("absent"), verifying=True) == ["Would have installed latest"]
    assert not decide(
        PackageProperties(name="zsh", ensure="latest"), found("5.9-8"), DecisionContext(verifying=True)
    ).is_stable


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (found("1.0-1"), found("1.0-1"), False),
        (found("1.0-1"), found("1.0-2"), True),
        (found("1.0-1", "dnf", epoch="0"), found("1.0-1", "dnf", epoch="1"), True),
        (found("absent"), found("1.0-1"), True),
    ],
)
def test_a_change_is_another_version_release_or_epoch(
    before: PackageState, after: PackageState, changed: bool
) -> None:
    assert has_changed(before, after) is changed


@pytest.mark.parametrize("name", ["zsh", "libstdc++6", "a+b", "cmtest-tool:all", "A_b.C", "0", "python3.11"])
def test_names_of_packages_are_accepted(name: str) -> None:
    check(PackageProperties(name=name, ensure="present"))


@pytest.mark.parametrize(
    ("name", "ensure", "sentence"),
    [
        ("zsh; rm -rf /", "present", "package name contains dangerous characters: 'zsh; rm -rf /'"),
        ("a b", "present", "package name contains dangerous characters: 'a b'"),
        *(
            (f"a{mark}b", "present", f"package name contains dangerous characters: {f'a{mark}b'!r}")
            for mark in (*";|&$`()[]{}<>*?!'\"\\", *" \t\n")
        ),
        *(
            ("zsh", f"1{mark}0", f"package version/ensure contains dangerous characters: {f'1{mark}0'!r}")
            for mark in (*";|&$`()[]{}<>*?!'\"\\", *" \t\n")
        ),
        (
            "-y",
            "present",
            "package name '-y' must begin with a letter or a digit",
        ),
        (
            "a/b",
            "present",
            "package name contains invalid characters: 'a/b' (allowed: alphanumeric, ._+:~-)",
        ),
        ("zsh", "1.0$(id)", "package version/ensure contains dangerous characters: '1.0$(id)'"),
        (
            "zsh",
            "-1",
            "package version '-1' begins with a hyphen, so a package manager would treat it as an option",
        ),
    ],
)
def test_ambiguous_names_are_refused(name: str, ensure: str, sentence: str) -> None:
    def refuse(wanted: PackageProperties) -> None:
        check_when_applied(wanted, {})

    with pytest.raises(PropertyError) as caught:
        check_each(PackageProperties(name=name, ensure=ensure), check, refuse)

    assert caught.value.message == sentence

"""Every row of the service type's decision tables, and every name it refuses."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.resources.contract import DecisionContext
from ccm_agent.resources.service.model import ServiceMetadata, ServiceProperties, ServiceState
from ccm_agent.resources.service.resource import check, check_when_applied, decide


def found(ensure: str, *, enabled: bool = False, said: str = "") -> ServiceState:
    """A service as found."""
    metadata = ServiceMetadata(
        name="httpd", provider="systemd", enabled=enabled, running=ensure == "running", said=said
    )
    return ServiceState(protocol="p", type="service", name="httpd", ensure=ensure, metadata=metadata)


@pytest.mark.parametrize(
    ("ensure", "enable", "state", "steps"),
    [
        ("running", None, found("running"), []),
        ("running", None, found("stopped"), ["Would have started"]),
        ("stopped", None, found("stopped"), []),
        ("stopped", None, found("running"), ["Would have stopped"]),
        ("running", True, found("running", enabled=True), []),
        ("running", True, found("running"), ["Would have enabled"]),
        ("running", False, found("running", enabled=True), ["Would have disabled"]),
        ("running", False, found("running"), []),
        ("running", None, found("running", enabled=True), []),
        ("running", True, found("stopped"), ["Would have started", "Would have enabled"]),
        ("stopped", False, found("running", enabled=True), ["Would have stopped", "Would have disabled"]),
    ],
)
def test_running_and_enabled_are_managed_each_for_itself(
    ensure: str, enable: bool | None, state: ServiceState, steps: list[str]
) -> None:
    wanted = ServiceProperties(name="httpd", ensure=ensure, enable=enable)

    decision = decide(wanted, state, DecisionContext())

    assert [step.noop for step in decision.steps] == steps
    assert decision.is_stable is not bool(steps)


@pytest.mark.parametrize(
    ("ensure", "state", "steps", "refreshed"),
    [
        pytest.param(
            "running", "running", ["Would have restarted via subscribe"], True, id="running is restarted"
        ),
        pytest.param("running", "stopped", ["Would have started"], False, id="stopped is started once"),
        pytest.param(
            "stopped", "running", ["Would have stopped"], False, id="to be stopped is not restarted"
        ),
        pytest.param("stopped", "stopped", [], False, id="stopped stays so"),
    ],
)
def test_a_subscription_restarts_only_a_service_that_runs_and_should_run(
    ensure: str, state: str, steps: list[str], refreshed: bool
) -> None:
    decision = decide(
        ServiceProperties(name="httpd", ensure=ensure),
        found(state),
        DecisionContext(triggered_by="file#/etc/x"),
    )

    assert ([step.noop for step in decision.steps], decision.refreshed) == (steps, refreshed)


def test_a_restart_is_not_asked_for_again_when_it_is_verified() -> None:
    context = DecisionContext(triggered_by="file#/etc/x", verifying=True)

    assert decide(ServiceProperties(name="httpd", ensure="running"), found("running"), context).steps == ()


def test_the_reason_has_the_difference_and_systemds_message() -> None:
    state = found("stopped", said="Failed to start httpd.service: Unit httpd.service is masked.")

    decision = decide(
        ServiceProperties(name="httpd", ensure="running", enable=True), state, DecisionContext(verifying=True)
    )

    assert decision.reason == (
        "service is stopped, expected running; service is disabled, expected enabled; "
        "Failed to start httpd.service: Unit httpd.service is masked."
    )


@pytest.mark.parametrize("name", ["httpd", "nginx.service", "my-app_v2", "a:b~c+d"])
def test_names_of_units_are_accepted(name: str) -> None:
    check(ServiceProperties(name=name, ensure="running"))


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("app; rm -rf /", "dangerous"),
        *((f"a{mark}b", "dangerous") for mark in (*";|&$`()[]{}<>*?!'\"\\", *" \t\n")),
        ("app@instance", "invalid"),
        ("a/b", "invalid"),
    ],
)
def test_an_invalid_unit_name_is_refused(name: str, word: str) -> None:
    with pytest.raises(PropertyError, match=f"service name contains {word} characters"):
        check(ServiceProperties(name=name, ensure="running"))


def test_a_name_that_systemctl_reads_as_an_option_is_refused() -> None:
    with pytest.raises(PropertyError, match="begins with a hyphen, so systemctl would treat it as an option"):
        check_when_applied(ServiceProperties(name="-x", ensure="running"), {})

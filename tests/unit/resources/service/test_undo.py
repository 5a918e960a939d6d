"""What brings a service back to the state that it had before."""

from __future__ import annotations

import pytest

from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.resources.service.model import ServiceMetadata, ServiceProperties, ServiceState
from ccm_agent.resources.service.resource import check, decide
from ccm_agent.resources.service.undo import RESTARTED, earlier, identify


def state(ensure: str, *, enabled: bool) -> ServiceState:
    metadata = ServiceMetadata(name="nginx", provider="systemd", enabled=enabled, running=ensure == "running")
    return ServiceState(protocol="p", type="service", name="nginx", ensure=ensure, metadata=metadata)


async def keep(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError("a service has no files to keep")


@pytest.mark.parametrize("enable", [True, False, None])
@pytest.mark.parametrize("ensure", ["running", "stopped"])
@pytest.mark.parametrize(
    "found", [state(word, enabled=on) for word in ("running", "stopped") for on in (True, False)]
)
async def test_the_earlier_state_is_wanted_and_is_stable_once_it_is_there(
    found: ServiceState, ensure: str, enable: bool | None
) -> None:
    wanted = ServiceProperties(name="nginx", ensure=ensure, enable=enable)

    before = await earlier(wanted, found, decide(wanted, found, DecisionContext()), keep)

    back = ServiceProperties(name="nginx", **before.properties)
    check(back)
    assert (back.ensure, before.why_not) == (found.ensure, "")
    assert decide(back, found, DecisionContext()).steps == ()
    after = state(ensure, enabled=found.metadata.enabled if enable is None else enable)
    is_undone = decide(back, after, DecisionContext()).steps != ()
    assert is_undone is (identify(after) != identify(found))


async def test_a_restart_is_named_and_not_undone() -> None:
    found = state("running", enabled=True)

    before = await earlier(ServiceProperties(name="nginx"), found, Decision(refreshed=True), keep)

    assert (before.why_not, before.properties) == (RESTARTED, {})

"""
The holder of the broker withholds the signers list in which an operator was revoked, and puts the earlier one back.

A node cannot notice that until the list's maximum age has passed. Then it obeys plans only, until somebody confirms a list.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.app import App
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY
from ccm_agent.bus.signatures.trust import SIGNERS_KEY, TRUST_BUCKET, sign_signers
from ccm_agent.bus.subjects import request_subject
from ccm_agent.engine.run import LocalEngine
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ids import new_id
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_CHECK, MANIFEST_PLAN
from ccm_agent.testing.nats_server import NatsServer
from ccm_ctl.fleet.keys.signers_timestamp import RenewalState, renew, renewing
from ccm_ctl.fleet.trust.seen_signers import SeenSigners
from tests.support.agent import (
    until,
)
from tests.support.nats_server import running_server
from tests.support.signed_node import NODE, SignedNode, signed_node
from tests.support.signing import FULL, Keyring, OwnRequests

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

MAX_AGE_S = 3600


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path / "nats") as one:
        yield one


@pytest.fixture
async def stage(tmp_path: Path, server: NatsServer) -> AsyncIterator[SignedNode]:
    async with signed_node(tmp_path, server) as one:
        yield one


async def test_revoked_operator_commands_nothing_once_nobody_has_confirmed_the_list(
    stage: SignedNode,
) -> None:
    keys = stage.keys
    ann, eve = keys.operator("ann", **FULL, timestamp=True), keys.operator("eve", **FULL)
    stage.trust = keys.trust(max_age_s=MAX_AGE_S)
    old = stage.trust.signers
    assert old is not None
    await stage.put(SIGNERS_KEY, old)
    await stage.put(TIMESTAMP_KEY, keys.timestamp(ann, keys.number))
    async with stage.agent() as agent:
        assert await stage.ask(eve, "changed /listed") == ("accepted", "")
        await stage.facts(ann, role="web")
        await until(lambda: agent.agent._context.assigned.facts == {"role": "web"})
    keys.signers.pop()
    new = sign_signers(keys.root, keys.listed(max_age_s=MAX_AGE_S))
    confirmed = keys.timestamp(ann, keys.number)

    # the broker withholds the new list, and the node is restarted
    async with stage.agent() as agent:
        record = agent.agent._context.record
        assert await stage.ask(eve, "changed /before-the-limit") == ("accepted", "")
        await until(lambda: len(stage.ran) == 1)
        stage.clock.ahead_s = MAX_AGE_S + 60.0
        await until(lambda: bool(record.plans_only))
        await stage.facts(eve, role="db")

        assert await stage.ask(eve, "changed /evil") == ("refused", "request.stale_signers")
        assert await stage.ask(ann, "changed /good") == ("refused", "request.stale_signers")
        assert await stage.ask(ann, "stable /planned", MANIFEST_PLAN) == ("accepted", "")
        await until(lambda: len(stage.ran) == 2)
        assert stage.ran == ["changed /before-the-limit", "stable /planned"]
        await until(lambda: "new documents are refused" in agent.agent._context.assigned.refusal)
        assert agent.agent._context.assigned.facts == {"role": "web"}

    # a restart does not help the attacker, nor does a timestamp of the past
    async with stage.agent() as agent:
        assert await stage.ask(eve, "changed /evil") == ("refused", "request.stale_signers")

        # the broker delivers again what the administrator wrote
        await stage.put(SIGNERS_KEY, new)
        await stage.put(TIMESTAMP_KEY, keys.timestamp(ann, keys.number))
        record = agent.agent._context.record
        await until(lambda: stage.keys.number == agent.agent._context.authenticator.signers.number)
        await until(lambda: not record.plans_only)
        assert await stage.ask(ann, "changed /good") == ("accepted", "")
        await until(lambda: stage.ran == ["changed /good"])
        await stage.facts(ann, role="mail")
        await until(lambda: agent.agent._context.assigned.facts == {"role": "mail"})

        # the earlier list and timestamp are of no use any more
        await stage.put(SIGNERS_KEY, old)
        await stage.put(TIMESTAMP_KEY, confirmed)
        body = b'{"protocol":"io.choria.ccm.v1.manifest.apply.request","run":"%s"}' % new_id().encode()
        await OwnRequests(stage.attacker, eve).publish(request_subject(MANIFEST_APPLY, "all"), body)
        assert await stage.ask(ann, "changed /last") == ("accepted", "")
        await until(lambda: stage.ran[-1:] == ["changed /last"])

    assert stage.ran == ["changed /good", "changed /last"]


@pytest.mark.parametrize("protocol", [MANIFEST_PLAN, MANIFEST_CHECK])
async def test_plan_of_a_revoked_operator_runs_no_command_once_the_list_is_outdated(
    stage: SignedNode, tmp_path: Path, protocol: str
) -> None:
    keys = stage.keys
    ann, eve = keys.operator("ann", **FULL, timestamp=True), keys.operator("eve", **FULL)
    stage.trust = keys.trust(max_age_s=MAX_AGE_S)
    made = tmp_path / "made"
    touch = {"unless": f"/usr/bin/touch {made}", "health_checks": [{"command": f"/usr/bin/touch {made}"}]}
    text = json.dumps({"ccm": {"resources": [{"exec": [{"/usr/bin/true": touch}]}]}})
    async with stage.agent(LocalEngine(App(os.environ, directory=str(tmp_path)).deps())) as agent:
        record = agent.agent._context.record
        stage.clock.ahead_s = MAX_AGE_S + 60.0
        await until(lambda: bool(record.plans_only))

        assert await stage.ask(eve, text, protocol) == ("accepted", "")
        await stage.controller.summary(stage.asked, NODE)
        assert not made.exists()

        await stage.put(TIMESTAMP_KEY, keys.timestamp(ann, keys.number))
        await until(lambda: not record.plans_only)
        assert await stage.ask(eve, text, protocol) == ("accepted", "")
        await stage.controller.summary(stage.asked, NODE)
        assert made.exists()


@pytest.mark.parametrize("who", ["an operator without the right", "a key that is not listed"])
async def test_only_listed_signers_confirm_a_list(stage: SignedNode, who: str) -> None:
    keys = stage.keys
    ann = keys.operator("ann", **FULL, timestamp=True)
    signatories: dict[str, Any] = {
        "an operator without the right": keys.operator("bob", **FULL),
        "a key that is not listed": Keyring().operator("ann", **FULL, timestamp=True),
    }
    stage.trust = keys.trust(max_age_s=MAX_AGE_S)
    async with stage.agent() as agent:
        record = agent.agent._context.record
        stage.clock.ahead_s = MAX_AGE_S + 60.0
        await until(lambda: bool(record.plans_only))

        await stage.put(TIMESTAMP_KEY, keys.timestamp(signatories[who], keys.number))
        await until(
            lambda: "may not sign timestamps" in agent.agent._services.subscriptions._signers._trouble
        )
        assert await stage.ask(ann, "changed /a") == ("refused", "request.stale_signers")

        await stage.put(TIMESTAMP_KEY, keys.timestamp(ann, keys.number))
        await until(lambda: not record.plans_only)
        assert await stage.ask(ann, "changed /a") == ("accepted", "")


async def issued(stage: SignedNode) -> int:
    """When the timestamp on the broker was signed; 0: there is none."""
    entry = await NatsKeyValue(stage.attacker, TRUST_BUCKET).get(TIMESTAMP_KEY)
    return msgspec.json.decode(entry.value)["issued"] if entry is not None else 0


async def test_ccmctl_renews_the_timestamp_at_half_of_the_maximum_age(
    stage: SignedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keys, seen = stage.keys, SeenSigners()
    ann, bob = keys.operator("ann", **FULL, timestamp=True), keys.operator("bob", **FULL)
    stage.trust = keys.trust(max_age_s=MAX_AGE_S)
    assert stage.trust.signers is not None
    await stage.put(SIGNERS_KEY, stage.trust.signers)

    assert await renew(stage.fleet(bob), stage.attacker, seen) == RenewalState.NOT_ALLOWED
    assert await issued(stage) == 0
    assert await renew(stage.fleet(ann), stage.attacker, seen) == RenewalState.RENEWED
    first = await issued(stage)
    assert await renew(stage.fleet(ann), stage.attacker, seen) == RenewalState.CURRENT
    stage.clock.ahead_s = MAX_AGE_S / 2 + 1
    async with renewing(stage.fleet(ann), stage.attacker):
        pass  # any command
    assert await issued(stage) > first > 0


async def test_ccmctl_confirms_no_list_that_is_older_than_one_it_has_seen(
    stage: SignedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keys, seen = stage.keys, SeenSigners()
    ann = keys.operator("ann", **FULL, timestamp=True)
    stage.trust = keys.trust(max_age_s=MAX_AGE_S)
    old = stage.trust.signers
    assert old is not None
    await stage.put(SIGNERS_KEY, sign_signers(keys.root, keys.listed(max_age_s=MAX_AGE_S)))
    assert await renew(stage.fleet(ann), stage.attacker, seen) == RenewalState.RENEWED
    confirmed = await issued(stage)

    await stage.put(SIGNERS_KEY, old)
    stage.clock.ahead_s = 2.0 * MAX_AGE_S
    with pytest.raises(ProtocolError, match="was seen before"):
        await renew(stage.fleet(ann), stage.attacker, seen, is_forced=True)
    async with renewing(stage.fleet(ann), stage.attacker):
        pass

    assert await issued(stage) == confirmed

"""What an agent does, and does not do, under its node's policy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccm_agent.agent.desired.origins import SourcePorts
from ccm_agent.agent.requests.request_handler import KINDS
from ccm_agent.agent.requests.requested_runs import find_action
from ccm_agent.agent.runs.admission import NodePolicy
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.subjects import request_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.records.policy import LOCAL, LOCAL_FROM_BROKER, Principal
from ccm_agent.model.wire import (
    AGENT_REFUSED,
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    NODE_CONVERGE,
    NODE_DISABLE,
    NODE_ENABLE,
    NODE_FACTS,
    NODE_PING,
    NODE_STATUS,
    RESOURCE_ENSURE,
    RESOURCE_EXEC,
    RESOURCE_IMPORT,
    RUN_STOP,
    EnsureRequest,
    MaintenanceRequest,
    ManifestRequest,
    NodeRecord,
    Request,
    StopRequest,
)
from ccm_agent.policy.ruling import Ruling
from ccm_agent.testing.clock import FakeClock as SteadyClock
from ccm_agent.testing.download import FakeDownload
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support import assignments
from tests.support.agent import (
    RESOURCE_TYPES,
    Controller,
    FakeClock,
    FakeEngine,
    Running,
    agent_ports,
    agent_settings,
    memory_bus,
    running,
    until,
    until_asked,
)
from tests.support.bundles import packed
from tests.support.signing import FULL, Keyring

NODE = "web1.example.net"
SITE = "/etc/site.yaml"

ALICE_ALONE = """\
default: deny
rules:
  - name: alice
    signers: [alice]
    allow: [all]
    forbid: {types: [exec]}
  - name: no facts
    deny: [facts]
"""


@pytest.fixture
def blockbuster() -> None:
    """Tests play the administrator, who has a process of his own: they may write files."""


class Stage:
    """A node with a policy, and a controller that hears it."""

    def __init__(self, folder: Path, policy: str = "") -> None:
        self.folder = folder
        self.path = folder / "policy.yaml"
        self.broker = MemoryBroker()
        self.clock = FakeClock(datetime.now(UTC))
        self.engine = FakeEngine()
        self.files = FakeFiles()
        self.bus = memory_bus(self.broker, NODE)
        self.controller = Controller(memory_bus(self.broker, "op"))
        self.keys = Keyring()
        self.alice = self.keys.operator("alice", **FULL)
        self.pat = self.keys.operator("pat", plan=("all",))
        if policy:
            self.path.write_text(policy)

    @contextlib.asynccontextmanager
    async def agent(
        self, *manifests: str, is_signed: bool = False, **settings: Any
    ) -> AsyncIterator[Running]:
        """An agent; one that demands signatures knows alice, who may do everything, and pat, who may plan."""
        self.engine = FakeEngine()
        values = {
            "policy_file": str(self.path),
            "manifests": manifests,
            "change_pause_s": 0,
            "interval_s": 300,
            **settings,
        }
        ports = agent_ports(
            self.bus,
            self.engine,
            self.clock,
            sources=SourcePorts(files=self.files, download=FakeDownload(), objects=self.bus.objects),
            trust=self.keys.trust(allow_unsigned_until=2**50) if is_signed else None,
        )
        if not self.controller.heard:
            await self.controller.listen()
        async with running(agent_settings(self.folder / "state", NODE, **values), ports) as one:
            yield one
            self.engine.go.set()

    def rewrite(self, one: Running, policy: str) -> None:
        """Another policy, and SIGHUP."""
        self.path.write_text(policy)
        one.agent.reload(one.agent.settings)

    async def ask(self, request: Request, signer: Signatory | None = None) -> tuple[str, str, str]:
        """State, code and reason of the answer to a request."""
        run = await self.send(request, signer)
        answer = await self.controller.answer(run, NODE)
        return answer.state, answer.code, answer.reason

    async def send(self, request: Request, signer: Signatory | None = None) -> str:
        request.run = new_id()
        subject, body = request_subject(request.protocol, "all"), msgspec.json.encode(request)
        headers = signer.request(subject, body) if signer else {}
        await self.controller.bus.requests.publish(subject, body, headers)
        return request.run

    async def record(self) -> NodeRecord:
        entry = await self.controller.bus.bucket("CCM_NODES").get(f"node.{NODE}")
        return msgspec.json.decode(entry.value, type=NodeRecord) if entry else NodeRecord(node=NODE)


def apply(protocol: str = MANIFEST_APPLY, **fields: Any) -> ManifestRequest:
    return ManifestRequest(**({"protocol": protocol, "name": "site", "manifest": "changed /a"} | fields))


RUNS: list[Request] = [
    apply(),
    apply(MANIFEST_PLAN),
    apply(MANIFEST_CHECK),
    EnsureRequest(protocol=RESOURCE_ENSURE, type="file", properties={"name": "/a"}),
    StopRequest(protocol=RUN_STOP, stop=new_id()),
    MaintenanceRequest(protocol=NODE_DISABLE, why="x"),
    MaintenanceRequest(protocol=NODE_ENABLE),
    MaintenanceRequest(protocol=NODE_CONVERGE),
]


# ---- requests


@pytest.mark.parametrize("request_", RUNS, ids=[one.protocol for one in RUNS])
async def test_a_request_that_no_rule_allows_is_refused_with_the_reason(
    tmp_path: Path, request_: Request
) -> None:
    at = Stage(tmp_path, ALICE_ALONE)
    async with at.agent():
        answered = await at.ask(replace(request_, requester="alice"))

    assert answered[:2] == ("refused", "policy.denied")
    assert answered[2].startswith("no rule of the node's policy allows alice (unverified) to ")
    assert at.engine.applied == []


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [(NODE_PING, "done"), (NODE_STATUS, "done"), (NODE_FACTS, "refused")],
)
async def test_looks_are_answered_unless_a_rule_names_them(
    tmp_path: Path, protocol: str, expected: str
) -> None:
    at = Stage(tmp_path, ALICE_ALONE)
    async with at.agent():
        state, _, reason = await at.ask(Request(protocol=protocol))

    assert state == expected
    assert ("the rule `no facts`" in reason) is (expected == "refused")


async def test_a_signer_whom_a_rule_names_is_obeyed_within_the_limits_of_the_rule(tmp_path: Path) -> None:
    at = Stage(tmp_path, ALICE_ALONE)
    async with at.agent(is_signed=True):
        run = await at.send(apply(requester="mallory"), at.alice)
        await at.controller.summary(run, NODE)

    ((_, options),) = at.engine.applied
    assert options.requester == "alice"
    assert options.grant is not None
    assert [layer.rule for layer in options.grant.layers] == ["", "alice"]
    assert options.grant.refuse_type("exec") is not None


async def test_nothing_in_a_request_makes_an_unsigned_one_alices(tmp_path: Path) -> None:
    at = Stage(tmp_path, ALICE_ALONE)
    async with at.agent(is_signed=True):
        answered = await at.ask(apply(requester="alice", cause="local"))

    assert answered[:2] == ("refused", "policy.denied")


async def test_refusal_is_recorded_in_the_ledger(tmp_path: Path) -> None:
    at = Stage(tmp_path, ALICE_ALONE)
    async with at.agent() as one:
        request = apply()
        run = await at.send(request)
        first = await at.controller.answer(run, NODE)
        at.rewrite(one, "default: allow")
        await at.controller.bus.requests.publish(
            request_subject(MANIFEST_APPLY, "all"), msgspec.json.encode(request)
        )
        again = await at.controller.answer(run, NODE, 2)

    assert (again.state, again.code, again.reason) == (first.state, first.code, first.reason)
    assert at.engine.applied == []


async def test_a_plan_of_a_signer_who_may_only_plan_is_restricted(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    async with at.agent(is_signed=True):
        for signer in (at.pat, at.alice):
            run = await at.send(apply(MANIFEST_PLAN), signer)
            await at.controller.summary(run, NODE)

    grants = [options.grant for _, options in at.engine.applied]
    assert grants[0] is not None
    assert grants[0].is_restricted
    assert grants[1] is None


async def test_a_run_that_waits_until_its_hours_are_over_is_refused_at_its_turn(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    span = f"{now:%H:%M}-{(now.hour + 2) % 24:02}:{now:%M}"
    at = Stage(tmp_path, f"default: deny\nrules: [{{name: now, allow: [all], hours: '{span}'}}]\n")
    async with at.agent():
        held = await at.send(apply(manifest="wait /held"))
        await at.engine.at_wait.wait()
        waiting = await at.send(apply(name="other"))
        assert (await at.controller.answer(waiting, NODE)).state == "queued"

        at.clock.pass_s(3 * 3600)
        at.engine.go.set()
        refused = await at.controller.answer(waiting, NODE, 2)
        summary = await at.controller.summary(held, NODE)

    assert (refused.state, refused.code) == ("refused", "policy.denied")
    assert span in refused.reason
    assert summary["state"] == "stable"


async def test_a_scheduled_request_is_judged_as_a_schedule(tmp_path: Path) -> None:
    at = Stage(
        tmp_path, "default: deny\nrules: [{name: timers, allow: [schedule], forbid: {types: [exec]}}]\n"
    )
    async with at.agent():
        body = f'{{"protocol":"{MANIFEST_APPLY}","manifest":"changed /a"}}'.encode()
        at.broker.fire(request_subject(MANIFEST_APPLY, "all"), body)
        await until(lambda: len(at.engine.applied) == 1)
        refused = await at.ask(apply())

    ((_, options),) = at.engine.applied
    assert options.grant is not None
    assert [layer.rule for layer in options.grant.layers] == ["", "timers"]
    assert refused[:2] == ("refused", "policy.denied")


@pytest.mark.parametrize("is_scheduled", [False, True], ids=["asked", "scheduled"])
async def test_a_request_that_waited_while_the_agent_was_off_is_judged_by_the_sender_of_it(
    tmp_path: Path, is_scheduled: bool
) -> None:
    way = "schedule" if is_scheduled else "apply"
    at = Stage(tmp_path, "default: allow")
    async with at.agent() as one:
        await at.send(apply(manifest="wait /held"))
        await at.engine.at_wait.wait()
        if is_scheduled:
            body = f'{{"protocol":"{MANIFEST_APPLY}","manifest":"changed /b"}}'.encode()
            at.broker.fire(request_subject(MANIFEST_APPLY, "all"), body)
        else:
            await at.send(apply(name="other", manifest="changed /b"))
        await until(
            lambda: one.agent.local_status is not None and len(one.agent._context.run_queue.waiting) == 1
        )
        await one.kill()
    at.path.write_text(f"default: deny\nrules: [{{name: mine, allow: [{way}]}}]\n")
    async with at.agent():
        await until(lambda: len(at.engine.applied) == 1)

    ((source, options),) = at.engine.applied
    assert source.text == b"changed /b"
    assert options.grant is not None
    assert [layer.rule for layer in options.grant.layers] == ["", "mine"]


# ---- assignments


class AssignedNode(assignments.World):
    """A node that converges on assignments under a policy; alice signs what she assigns."""

    def __init__(self, folder: Path, policy: str) -> None:
        super().__init__(folder / "state")
        self.path = folder / "policy.yaml"
        self.path.write_text(policy)
        self.clock = SteadyClock(datetime.now(UTC))
        self.keys = Keyring()
        self.alice = assignments.Operator(
            memory_bus(self.broker, "alice", self.keys.operator("alice", **FULL))
        )

    @contextlib.asynccontextmanager
    async def agent(self, **settings: Any) -> AsyncIterator[Running]:
        """An agent under the policy."""
        values = {"change_pause_s": 0, "interval_s": 300, "policy_file": str(self.path), **settings}
        trust = self.keys.trust(allow_unsigned_until=2**50)
        ports = agent_ports(self.bus, self.engine, self.clock, trust=trust)
        async with running(agent_settings(self.folder, NODE, **values), ports) as one:
            yield one


async def test_an_assignment_that_no_rule_allows_is_refused_and_reported(tmp_path: Path) -> None:
    node = AssignedNode(tmp_path, ALICE_ALONE)
    async with node.agent():
        await node.operator.assign("site", "changed /a", requester="alice")
        state = await node.operator.stands("site", "refused")

    assert state.code == "policy.denied"
    assert state.reason == (
        "no rule of the node's policy allows alice (unverified) to apply by an assignment now"
    )
    assert state.next_time is not None
    assert node.engine.applied == []


async def test_an_assignment_is_applied_once_the_policy_allows_it(tmp_path: Path) -> None:
    node = AssignedNode(tmp_path, ALICE_ALONE)
    allowing = "default: deny\nrules: [{name: all, allow: [assignment], only: {types: [file]}}]\n"
    async with node.agent() as one:
        await node.operator.assign("site", "changed /a")
        await node.operator.stands("site", "refused")
        node.path.write_text(allowing)
        one.agent.reload(one.agent.settings)
        await node.operator.stands("site", "changed")

    ((_, options),) = node.engine.applied
    assert options.grant is not None
    assert options.grant.layers[1].rule == "all"


async def test_max_mode_plan_leaves_assignments_that_only_plan(tmp_path: Path) -> None:
    node = AssignedNode(tmp_path, "default: allow\nmax_mode: plan\n")
    async with node.agent():
        await node.operator.assign("look", "changed /a", mode="plan")
        await node.operator.assign("do", "changed /b")
        await node.operator.stands("look", "changed")
        state = await node.operator.stands("do", "refused")

    ((_, options),) = node.engine.applied
    assert (options.noop, state.code) == (True, "policy.mode")
    assert options.grant is not None
    assert options.grant.is_restricted


async def test_an_assignment_that_the_policy_refuses_keeps_no_other_from_its_resources(
    tmp_path: Path,
) -> None:
    node = AssignedNode(tmp_path, ALICE_ALONE)
    async with node.agent():
        await node.operator.assign("other", "changed /a")
        await node.operator.stands("other", "refused")
        await node.alice.assign("hers", "changed /a")
        await node.operator.stands("hers", "changed")
        state = await node.operator.stands("other", "refused")

    ((_, options),) = node.engine.applied
    assert state.code == "policy.denied"
    assert options.grant is not None
    assert (options.grant.who, options.grant.layers[1].rule) == ("alice", "alice")


# ---- the node's own configuration


async def test_own_manifests_are_not_bound_unless_a_rule_names_them(tmp_path: Path) -> None:
    at = Stage(tmp_path, "default: deny\nforbid: {types: [file]}\n")
    at.files.put(SITE, "changed /a")
    async with at.agent(SITE):
        await until(lambda: len(at.engine.applied) == 1)

    assert at.engine.applied[0][1].grant is None


async def test_a_rule_for_local_binds_own_manifests(tmp_path: Path) -> None:
    text = "default: allow\nrules: [{name: own, signers: [local], allow: [apply], forbid: {types: [exec]}}]\n"
    at = Stage(tmp_path, text)
    at.files.put(SITE, "changed /a")
    async with at.agent(SITE):
        await until(lambda: len(at.engine.applied) == 1)

    grant = at.engine.applied[0][1].grant
    assert grant is not None
    assert [layer.rule for layer in grant.layers] == ["own"]


async def test_a_rule_that_denies_local_keeps_own_manifests_from_being_applied(tmp_path: Path) -> None:
    at = Stage(tmp_path, "default: allow\nrules: [{name: own, signers: [local], deny: [apply]}]\n")
    at.files.put(SITE, "changed /a")
    async with at.agent(SITE) as one:
        told = await at.controller.said_like(AGENT_REFUSED)
        ended = await one.agent.converge_once()

    assert at.engine.applied == []
    assert told["details"] == {"refused": SITE}
    assert "the rule `own`" in told["message"]
    assert [(one.state, one.code) for one in ended] == [("refused", "policy.denied")]


# ---- a policy that cannot be used

BROKEN = "default: deny\nrulez: []\n"


@pytest.mark.parametrize("request_", RUNS, ids=[one.protocol for one in RUNS])
async def test_while_the_policy_is_broken_nothing_from_the_bus_is_run(
    tmp_path: Path, request_: Request
) -> None:
    at = Stage(tmp_path, BROKEN)
    async with at.agent(is_signed=True):
        state, code, reason = await at.ask(replace(request_), at.alice)
        pinged = await at.ask(Request(protocol=NODE_PING), at.alice)

    assert (state, code) == ("refused", "policy.broken")
    assert "unknown key `rulez`, did you mean `rules`?" in reason
    assert pinged[0] == "done"
    assert at.engine.applied == []


async def test_a_broken_policy_is_reported_to_everyone(tmp_path: Path) -> None:
    at = Stage(tmp_path, BROKEN)
    async with at.agent() as one:
        told = await at.controller.said_like(AGENT_REFUSED)
        status = await one.agent.local_status.now()

        async def is_recorded() -> bool:
            return "policy" in (await at.record()).conflict

        await until_asked(is_recorded)
        at.rewrite(one, "default: allow")
        mended = await one.agent.local_status.now()

        async def is_well() -> bool:
            return not (await at.record()).conflict

        await until_asked(is_well)

    assert told["details"] == {"refused": "policy"}
    assert "rulez" in told["message"]
    assert "rulez" in status["policy"]["trouble"]
    assert (mended["policy"]["rules"], len(mended["policy"]["digest"])) == (0, 64)


async def test_while_the_policy_is_broken_own_files_are_applied_and_objects_of_the_broker_are_not(
    tmp_path: Path,
) -> None:
    at = Stage(tmp_path, BROKEN)
    at.files.put(SITE, "changed /a")
    await at.bus.objects("SITES").put("site.tar.gz", packed("changed /b"))
    async with at.agent(SITE, "obj://SITES/site.tar.gz") as one:
        await until(lambda: len(at.engine.applied) == 1)
        ended = {each.name: each for each in await one.agent.converge_once()}

    assert {source.name for source, _ in at.engine.applied} == {SITE}
    from_broker = ended["obj://SITES/site.tar.gz"]
    assert (from_broker.state, from_broker.code) == ("refused", "policy.broken")


async def test_a_policy_that_is_broken_by_an_edit_does_not_leave_the_old_one_in_force(tmp_path: Path) -> None:
    at = Stage(tmp_path, "default: allow")
    async with at.agent() as one:
        at.rewrite(one, BROKEN)
        refused = await at.ask(apply())
        at.path.chmod(0o666)
        at.rewrite(one, "default: allow")
        shared = await at.ask(apply())
        at.path.chmod(0o644)
        at.rewrite(one, "default: allow")
        allowed = await at.ask(apply())

    assert (refused[1], shared[1], allowed[0]) == ("policy.broken", "policy.broken", "accepted")
    assert "other users can write" in shared[2]


async def test_a_configured_policy_that_is_missing_is_an_error(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    async with at.agent(is_policy_required=True):
        refused = await at.ask(apply())
    async with at.agent():
        allowed = await at.ask(apply())

    assert (refused[1], allowed[0]) == ("policy.broken", "accepted")
    assert "the file does not exist" in refused[2]


def test_assignments_and_objects_count_as_coming_from_the_bus(tmp_path: Path) -> None:
    policy = NodePolicy(lambda: RESOURCE_TYPES, SteadyClock())
    (tmp_path / "policy.yaml").write_text(BROKEN)
    policy.load(str(tmp_path / "policy.yaml"), is_required=False)

    def code(ruling: Ruling) -> str:
        return ruling.code

    assert code(policy.ruling(Principal(name="a", is_verified=True), "assignment", "plan")) == "policy.broken"
    assert code(policy.ruling(LOCAL_FROM_BROKER, "apply", "apply")) == "policy.broken"
    assert code(policy.ruling(LOCAL, "apply", "apply")) == ""


# ---- nothing in a request has a say


@given(
    protocol=st.sampled_from(sorted(KINDS)),
    scheduled=st.booleans(),
    scope=st.sampled_from(["all", f"node.{NODE}", "fact.role.web"]),
    body=st.dictionaries(
        st.sampled_from(
            ["requester", "cause", "name", "events", "data", "targets", "where", "named", "deadline_s", "catch_up",
             "manifest", "digest", "type", "properties", "stop", "principal", "grant", "roles", "action", "mode"]
        ),
        st.one_of(st.text(), st.booleans(), st.integers(), st.lists(st.text(), max_size=2)),
    ),
)  # fmt: skip
def test_the_action_of_a_request_depends_on_its_kind_alone(
    protocol: str, scheduled: bool, scope: str, body: dict[str, object]
) -> None:
    def incoming(content: dict[str, object]) -> IncomingRequest:
        return IncomingRequest(
            subject=f"{protocol}.{scope}",
            protocol=protocol,
            scope=scope,
            body=msgspec.json.encode({**content, "protocol": protocol}),
            scheduled=scheduled,
        )

    assert find_action(incoming(body)) == find_action(incoming({}))


def test_every_kind_of_request_has_an_action_and_a_strange_one_has_none() -> None:
    def action(protocol: str, *, scheduled: bool = False) -> tuple[str, str] | None:
        return find_action(
            IncomingRequest(subject="s", protocol=protocol, scope="all", body=b"", scheduled=scheduled)
        )

    assert {protocol: action(protocol) for protocol in KINDS} == {
        MANIFEST_APPLY: ("apply", "apply"),
        MANIFEST_PLAN: ("plan", "plan"),
        MANIFEST_CHECK: ("check", "check"),
        RESOURCE_ENSURE: ("ensure", "ensure"),
        RESOURCE_EXEC: ("exec", "exec"),
        RESOURCE_IMPORT: ("import", ""),
        RUN_STOP: ("stop", ""),
        NODE_DISABLE: ("disable", ""),
        NODE_ENABLE: ("enable", ""),
        NODE_CONVERGE: ("converge", ""),
        NODE_PING: ("ping", ""),
        NODE_FACTS: ("facts", ""),
        NODE_STATUS: ("status", ""),
    }
    assert action(MANIFEST_PLAN, scheduled=True) == ("schedule", "plan")
    assert action("io.choria.ccm.v1.node.reboot.request") is None


async def test_the_stage_cleans_up(tmp_path: Path) -> None:
    """The stage itself: an agent that still has a run ends in time."""
    at = Stage(tmp_path)
    async with asyncio.timeout(10), at.agent():
        await at.send(apply(manifest="wait /held"))
        await at.engine.at_wait.wait()

"""Rollouts that operators hand to a rollout server, on a broker with security: what the server does in whose name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ccm_agent.bus.subjects import encode_token, request_subject
from ccm_agent.model.records.rollout_records import Phase, RolloutPlan, RolloutState, Wave
from ccm_agent.model.wire import RESOURCE_EXEC, ExecRequest
from ccm_ctl.app import ConnectionOptions, bus_settings, connected
from ccm_ctl.fleet.nodes.nodes import TargetSet
from ccm_ctl.fleet.rollout.handover import hand_over
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.run_request import prepare
from ccm_ctl.fleet.runs.run_session import record_rollout
from tests.support.fleet import a_file, manifest
from tests.support.secured import Secured, secured_fleet
from tests.support.signing import OWN

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

NODES = ("web1", "db1")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The nodes web1 (role=web) and db1; bob applies to role=web, sue also runs commands there, and server does both anywhere."""
    with secured_fleet(tmp_path_factory.mktemp("handovers")) as one:
        creds = one.give("node", "db1")
        one.fleet.add("db1", nats={"url": one.fleet.environ["NATS_URL"], "creds": str(creds)})
        one.give("operator", "sue", "--apply", "role=web", "--exec", "role=web")
        one.give("operator", "server", "--apply", "all", "--exec", "all")
        one.fleet.wait_for(
            lambda: one.as_("server", "exec", "--all", "--yes", "true").code == 0,
            "the nodes to know the server",
        )
        yield one


def has_file(secured: Secured, node: str, name: str) -> bool:
    return (secured.fleet.agents[node].files / name).exists()


def test_server_applies_for_an_operator_who_may_apply_there(secured: Secured) -> None:
    path = secured.fleet.write("applied.yaml", manifest(a_file("applied")))
    words = ["apply", path, "-t", "role=web", "--batch", "1", "--detach", "--yes", "--json"]
    handed = secured.as_("bob", *words)

    served = secured.as_("server", "rollout", "serve", "--once")
    shown = secured.as_("bob", "run", "show", handed.run, "--json")

    assert (handed.code, served.code) == (0, 0), handed.err + served.err
    assert shown.states == {"web1": "changed"}
    assert [has_file(secured, node, "applied") for node in NODES] == [True, False]


def test_server_runs_a_command_for_an_operator_with_exec(secured: Secured) -> None:
    words = ["exec", "-t", "role=web", "--batch", "1", "--detach", "--yes", "--json", "--", "echo", "served"]
    handed = secured.as_("sue", *words)

    served = secured.as_("server", "rollout", "serve", "--once")
    shown = secured.as_("sue", "run", "show", handed.run, "--json")

    assert (handed.code, served.code) == (0, 0), handed.err + served.err
    assert shown.states == {"web1": "changed"}
    assert [one["output"] for one in shown.resources] == ["served\n"]


def test_server_brings_an_assignment_to_the_nodes_and_completes_it(secured: Secured) -> None:
    path = secured.fleet.write("word.yaml", manifest(a_file("assigned")))
    words = ["assign", "word", path, "-t", "role=web", "--batch", "1", "--detach", "--yes", "--json"]
    handed = secured.as_("bob", *words)

    served = secured.as_("server", "rollout", "serve", "--once")
    status = secured.as_("bob", "assignment", "status", "word", "--json", "--wait", "20s")
    again = secured.as_("bob", "run", "resume", handed.run)
    removed = secured.as_("bob", "unassign", "word")

    assert (handed.code, served.code) == (0, 0), handed.err + served.err
    assert "all waves have ended" in served.err
    assert status.code == 0, status.err
    assert [has_file(secured, node, "assigned") for node in NODES] == [True, False]
    assert (again.code, removed.code) == (1, 0)


def forge(
    secured: Secured, operator: str, *, scope: str, nodes: list[str], mark: Path, is_signed: bool
) -> str:
    """An operator writes the record and the state of a command's rollout by hand; the run."""

    async def write() -> str:
        environ = {**secured.fleet.environ, "CCM_CREDS": str(secured.directory / f"{operator}.creds")}
        async with connected(bus_settings(ConnectionOptions(), environ)) as broker:
            fleet = broker.fleet
            request = ExecRequest(protocol=RESOURCE_EXEC, argv=["touch", str(mark)], timeout_s=10)
            resolved = TargetSet(nodes=nodes, offline=[], scopes=[scope], targets=[], where="")
            launch = prepare(fleet, request, resolved, "exec", "touch", base=OWN)
            assert launch.record.subjects == [request_subject(RESOURCE_EXEC, scope)]
            plan = RolloutPlan(waves=(Wave(name="all", nodes=len(nodes), slots=len(nodes)),))
            state = RolloutState(run=launch.record.run, plan=plan)
            revision = await record_rollout(fleet, launch, state)
            handed = hand_over(fleet, state, launch.record, nodes, base=OWN)
            await RolloutStore(fleet).write(
                handed if is_signed else replace(handed, signature=""), revision, base=OWN
            )
            return launch.record.run

    return asyncio.run(write())


@pytest.mark.parametrize(
    ("operator", "scope", "is_signed", "reason"),
    [
        ("sue", "all", True, "its state is unverified: sue signed it, but may not exec on all"),
        (
            "bob",
            "fact.role.web",
            True,
            "its state is unverified: bob signed it, but may not exec on fact.role.web",
        ),
        ("sue", "fact.role.web", False, "it is not signed"),
    ],
    ids=["other scope", "other action", "not signed"],
)
def test_server_runs_nothing_that_the_operator_may_not_run(
    secured: Secured, operator: str, scope: str, is_signed: bool, reason: str
) -> None:
    mark = secured.directory / "forged"
    run = forge(secured, operator, scope=scope, nodes=list(NODES), mark=mark, is_signed=is_signed)

    served = secured.as_("server", "rollout", "serve", "--once")
    aborted = secured.as_("tester", "run", "abort", run)

    assert f"run {run[:8]}: not driven: " in served.err
    assert reason in served.err
    assert not mark.exists()
    assert aborted.code == 0, aborted.err


def test_server_does_not_drive_a_rollout_again_that_was_aborted(secured: Secured) -> None:
    """An operator who may send its request opens it again; the state of one who may not is not obeyed at all."""
    mark = secured.directory / "again"
    run = forge(secured, "sue", scope="fact.role.web", nodes=["web1"], mark=mark, is_signed=True)
    aborted = secured.as_("sue", "run", "abort", run)

    async def open_again() -> None:
        environ = {**secured.fleet.environ, "CCM_CREDS": str(secured.keys / "tester.creds")}
        async with connected(bus_settings(ConnectionOptions(), environ)) as broker:
            await RolloutStore(broker.fleet).change(
                run, lambda state: replace(state, phase=Phase.RUNNING), base=OWN
            )

    asyncio.run(open_again())
    served = secured.as_("server", "rollout", "serve", "--once")
    secured.as_("sue", "run", "abort", run)

    assert aborted.code == 0, aborted.err
    assert "sue has stopped it or recorded its end" in served.err
    assert not mark.exists()


def test_server_reaches_no_node_outside_of_the_scope_that_the_operator_may_use(secured: Secured) -> None:
    """The operator lists another node in the record, where no broker and no agent sees it."""
    mark = secured.directory / "outside"
    run = forge(secured, "sue", scope="fact.role.web", nodes=["db1"], mark=mark, is_signed=True)

    server = secured.fleet.begin("--creds", str(secured.directory / "server.creds"), "rollout", "serve")
    secured.fleet.wait_for(lambda: f"run {run[:8]}: driving" in server.so_far.err, "the server to drive it")
    secured.fleet.wait_for(
        lambda: secured.as_("sue", "rollout", "list", "--json").named("rollout")[0]["asked"] == 1,
        "the node to be asked",
    )
    # a request that the node hears afterwards
    heard = secured.as_("server", "exec", "-t", "node=db1", "--yes", "true")
    secured.as_("sue", "run", "abort", run)
    server.kill()

    assert heard.code == 0, heard.err
    assert not mark.exists()


def test_server_does_not_start_a_record_that_was_changed_after_the_handover(secured: Secured) -> None:
    """The holder of the broker exchanges the command, and the nodes. The control: the genuine record is driven."""
    mark = secured.directory / "changed"
    words = [
        "exec",
        "-t",
        "role=web",
        "--batch",
        "1",
        "--detach",
        "--yes",
        "--json",
        "--",
        "touch",
        str(mark),
    ]
    handed = secured.as_("sue", *words)
    evil = secured.directory / "evil"
    token = encode_token("sue")

    def serve_with(kind: str, old: bytes, new: bytes) -> str:
        """What a server says while a piece of the record is another one."""

        async def swap(value: bytes | None) -> bytes:
            environ = {**secured.fleet.environ, "CCM_CREDS": str(secured.directory / "sue.creds")}
            async with connected(bus_settings(ConnectionOptions(), environ)) as broker:
                entry = await broker.fleet.runs.get(f"{token}.{handed.run}.{kind}")
                assert entry is not None
                genuine = entry.value
                signature = signatures.setdefault(kind, entry.signature)
                changed = genuine.replace(old, new) if value is None else value
                assert changed != genuine
                await broker.fleet.runs.update(entry.key, changed, entry.revision, signature=signature)
                return genuine

        genuine = asyncio.run(swap(None))
        said = secured.as_("server", "rollout", "serve", "--once").err
        asyncio.run(swap(genuine))
        return said

    signatures: dict[str, str] = {}
    other_command = serve_with("request", str(mark).encode(), str(evil).encode())
    other_nodes = serve_with("targets.0", b'"web1"', b'"db1"')
    before = (mark.exists(), evil.exists())
    control = secured.as_("server", "rollout", "serve", "--once")

    assert handed.code == 0, handed.err
    assert "its record is unverified" in other_command or "has no record" in other_command
    assert "its list of nodes was changed after signing" in other_nodes
    assert (before, mark.exists(), evil.exists()) == ((False, False), True, False), control.err

"""Commands about a run whose rollout is open: what asks, what refuses, and which command they name."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from ccm_agent.bus.signatures.trust import SIGNERS_KEY, TRUST_BUCKET
from ccm_agent.bus.subjects import request_subject
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.rollout_records import Lease, Phase, RolloutPlan, RolloutState, Wave
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import MANIFEST_APPLY
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.__main__ import VERBS
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import CtlProgram
from ccm_ctl.fleet.rollout.lease import LEASE_S
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History
from tests.support.controller import NOW, Desk, FakeNode, fleet_on
from tests.support.signed_desk import Crew, SignedDesk
from tests.support.signing import OWN

PLAN = RolloutPlan(waves=(Wave(name="wave 1", nodes=2, slots=1),))


def renewed(seconds_ago: float) -> Lease:
    until = NOW + timedelta(seconds=LEASE_S - seconds_ago)
    return Lease(operator="ana", host="vm", process="p", until=until)


def with_rollout(phase: Phase, lease: Lease | None = None) -> tuple[Desk, str]:
    """A desk with a rollout of op on web1 and web2, which has asked no node; and its run."""
    desk, run = (
        Desk(*(FakeNode(name, {}, [], record={"undo": True}) for name in ("web1", "web2", "web3"))),
        new_id(NOW),
    )

    async def write(broker: MemoryBroker) -> None:
        desk.hooks.remove(write)
        fleet = fleet_on(MemoryBus(broker, "op"))
        record = RunRecord(
            run=run,
            action="apply",
            name="site",
            requester="op",
            time=NOW,
            nodes=2,
            subjects=[request_subject(MANIFEST_APPLY, "all")],
            request={"protocol": MANIFEST_APPLY, "name": "site"},
        )
        await History(fleet).begin(record, ["web1", "web2"], [], OWN)
        state = RolloutState(run=run, plan=PLAN, phase=phase, reason="lunch", lease=lease)
        await RolloutStore(fleet).write(state, 0, base=OWN)

    desk.hooks.append(write)
    return desk, run


def phase_of(desk: Desk) -> str:
    found = desk.ccmctl("rollout", "list", "--json").named("rollout")
    return str(found[0]["phase"]) if found else "over"


def test_a_paused_rollout_is_not_stopped_without_a_terminal() -> None:
    desk, run = with_rollout(Phase.PAUSED)

    said = desk.ccmctl("run", "stop", run)

    assert (said.code, said.screen) == (
        1,
        'ccmctl: cannot ask "run RUN (apply site by op) is a paused rollout; stopping it aborts it, which cannot be undone '
        '(`ccmctl run resume RUN` continues it). abort it?" without a terminal; use `ccmctl run abort RUN`, or --yes\n',
    )
    assert phase_of(desk) == "paused"


@pytest.mark.parametrize(("typed", "phase"), [("n\n", "paused"), ("y\n", "over")])
def test_a_paused_rollout_is_aborted_by_a_stop_if_the_operator_agrees(typed: str, phase: str) -> None:
    desk, run = with_rollout(Phase.PAUSED)

    desk.ccmctl("run", "stop", run, typed=typed)

    assert phase_of(desk) == phase


@pytest.mark.parametrize(("phase", "more"), [(Phase.PAUSED, ["--yes"]), (Phase.RUNNING, [])])
def test_a_stop_does_not_ask_when_that_was_agreed_to_or_the_rollout_is_in_progress(
    phase: Phase, more: list[str]
) -> None:
    desk, run = with_rollout(phase)

    said = desk.ccmctl("run", "stop", run, *more)

    assert ("cannot ask" in said.err, phase_of(desk)) == (False, "over")


@pytest.mark.parametrize(
    ("phase", "lease", "way_out"),
    [
        pytest.param(
            Phase.PAUSED,
            None,
            "the rollout is paused; continue it with `ccmctl run resume RUN`, or end it with `ccmctl run abort RUN`",
            id="paused",
        ),
        pytest.param(
            Phase.RUNNING,
            None,
            "no process drives the rollout; continue it with `ccmctl run resume RUN`, or end it with `ccmctl run abort RUN`",
            id="no driver",
        ),
        pytest.param(
            Phase.RUNNING,
            renewed(1),
            "wait for the rollout with `ccmctl run watch RUN`, or end it with `ccmctl run abort RUN`",
            id="in progress",
        ),
    ],
)
def test_the_refusal_to_undo_an_open_rollout_names_the_command_that_ends_it(
    phase: Phase, lease: Lease | None, way_out: str
) -> None:
    desk, run = with_rollout(phase, lease)

    said = desk.ccmctl("undo", run, "--yes")

    assert said.code == 1
    assert f"{run[:8]}: web1, web2 have not ended; {way_out.replace('RUN', run[:8])}\n" in said.err


@pytest.mark.parametrize(
    ("seconds_ago", "driver"), [(4, "ana on vm"), (12, "ana on vm; no heartbeat for 12s")]
)
def test_the_list_of_rollouts_marks_a_driver_that_missed_its_renewal(seconds_ago: float, driver: str) -> None:
    desk, _ = with_rollout(Phase.RUNNING, renewed(seconds_ago))

    [_, row] = desk.ccmctl("rollout", "list").out.splitlines()

    assert row.endswith(f"1 at once  {driver}")


def test_a_resume_that_does_not_wait_is_refused_while_a_driver_has_its_lease() -> None:
    desk, run = with_rollout(Phase.RUNNING, renewed(11))

    said = desk.ccmctl("run", "resume", run, "--no-wait")

    assert said.code == 1
    assert said.err.endswith("or take over when the lease expires, in 9 s\n")


WARNING = (
    "ccmctl: warning: web[1-2]: run RUN (apply site by op) is an open rollout on these nodes, too: "
    "paused in wave 1 (1/1): lunch\n"
)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["apply", "SITE"], id="apply"),
        pytest.param(["apply", "SITE", "--batch", "1"], id="rollout"),
        pytest.param(["exec", "--", "true"], id="exec"),
        pytest.param(["ensure", "exec", "true"], id="ensure"),
        pytest.param(["assign", "other", "SITE"], id="assign"),
    ],
)
def test_a_change_of_nodes_of_an_open_rollout_names_it_before_it_asks(
    command: list[str], tmp_path: Path
) -> None:
    desk, _ = with_rollout(Phase.PAUSED)
    site = tmp_path / "site"
    site.mkdir()
    (site / "manifest.yaml").write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    words = [str(site) if word == "SITE" else word for word in command]

    refused = desk.ccmctl(words[0], "--all", *words[1:])
    other = desk.ccmctl(words[0], "-t", "node=web3", *words[1:])

    assert (refused.code, "cannot ask" in refused.err) == (1, True)
    assert WARNING in refused.screen
    assert ("cannot ask" in other.err, "is a rollout" in other.err) == (True, False)
    assert not [node.heard for node in desk.nodes if node.heard]


def test_a_change_that_was_agreed_to_goes_on_and_names_the_open_rollout() -> None:
    desk, _ = with_rollout(Phase.PAUSED)

    said = desk.ccmctl("exec", "-t", "node=web1", "--yes", "--", "true")

    assert [bool(node.heard) for node in desk.nodes] == [True, False, False]
    assert "web1: run RUN (apply site by op) is an open rollout on this node, too: paused" in said.screen


def test_a_rollout_that_is_over_is_not_named() -> None:
    desk, run = with_rollout(Phase.PAUSED)
    desk.ccmctl("run", "abort", run)

    assert "is a rollout" not in desk.ccmctl("exec", "--all", "--yes", "--", "true").err


def test_no_further_question_goes_to_the_broker_when_no_rollout_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, run = with_rollout(Phase.PAUSED)
    desk.ccmctl("run", "abort", run)
    loaded = []
    monkeypatch.setattr(History, "load", lambda _self, run: loaded.append(run))

    desk.ccmctl("exec", "--all", "--", "true")

    assert loaded == []


def test_orders_about_rollouts_complete_open_rollouts_only() -> None:
    desk, run = with_rollout(Phase.PAUSED)
    desk.ccmctl("exec", "--all", "--yes", "--", "true")

    environ = {"CCM_OPERATOR": "op", "HOME": "/nonexistent"}
    application = Application(Terminal("ccmctl", environ={}), environ, desk._connect)
    shell = ShellComplete(CtlProgram(VERBS), {"obj": application}, "ccmctl", "_X")

    def offered(verb: str) -> list[str]:
        return [item.value for item in shell.get_completions(["run", verb], "")]

    assert [offered(order) for order in ("pause", "resume", "promote", "abort")] == [[run[:8]]] * 4
    assert len(offered("show")) == 3  # `last`, the rollout and the command


def test_a_command_is_not_handed_to_servers_without_signatures() -> None:
    desk = Desk(*(FakeNode(name) for name in ("web1", "web2")))
    words = ("exec", "--all", "--yes", "--batch", "1", "--detach", "--", "true")

    said = desk.ccmctl(*words)

    assert (said.code, "rollout servers run commands only for operators who sign" in said.err) == (1, True)
    assert desk.ccmctl("run", "list", "--json").named("run") == []


@pytest.mark.parametrize("has_trust", [True, False])
def test_a_server_starts_only_with_credentials_that_can_verify(*, has_trust: bool) -> None:
    desk = SignedDesk(Crew())
    assert desk.crew.trust.signers is not None
    signed = desk.crew.trust.signers
    desk._store(TRUST_BUCKET, SIGNERS_KEY, signed.body.encode(), signed.signature)
    desk.trust = desk.crew.trust if has_trust else None

    said = desk.ccmctl("rollout", "serve", "--once")

    assert (said.code == 0, "these credentials have no trust block" in said.err) == (has_trust, not has_trust)

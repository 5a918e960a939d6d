"""Agents and controllers of the released form beside those of this tree: one fleet, and an upgrade in place."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.connection.messages import SENT
from ccm_agent.bus.subjects import request_subject
from ccm_agent.model.bundle import PartialManifest
from ccm_agent.model.ids import new_id
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest
from ccm_agent.testing.nats_server import NatsServer, ServerSettings
from tests.support.fleet import TOP, Done, Fleet, a_file, a_gate, fleet, manifest
from tests.support.nats_server import require_server
from tests.support.raw_client import raw_client
from tests.support.released import unpack_released

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the released form."""
    folder = tmp_path_factory.mktemp("released")
    unpack_released(folder)
    return folder


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, released: Path) -> Iterator[Fleet]:
    """An agent of each form on one broker."""
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        built.add("old1", code=released)
        built.add("new1")
        assert built.ctl("facts", "set", "old1", "new1", "role=web").code == 0
        yield built


@pytest.mark.parametrize("form", ["released", "this"])
def test_controller_of_either_form_drives_agents_of_both(mixed: Fleet, released: Path, form: str) -> None:
    code = released if form == "released" else TOP
    path = mixed.write("site.yaml", manifest(a_file(f"by-{form}")))
    site = mixed.write(f"{form}/manifest.yaml", manifest(a_file(f"assigned-by-{form}")))

    applied = mixed.ctl("apply", path, "-t", "role=web", "--yes", "--json", code=code)
    assigned = mixed.ctl("assign", form, str(Path(site).parent), "-t", "role=web", "--yes", code=code)
    status = mixed.ctl("assignment", "status", form, "--wait", "60s", "--json", code=code)
    ended = mixed.ctl("unassign", form, "--yes", code=code)
    shown = mixed.ctl("run", "show", applied.run, "--json", code=code)

    assert (applied.code, applied.states) == (0, {"old1": "changed", "new1": "changed"}), applied.err
    assert (assigned.code, status.code, ended.code) == (0, 0, 0), (assigned.err, status.err, ended.err)
    assert (shown.code, shown.states) == (0, applied.states)
    for agent in mixed.agents.values():
        assert {f"by-{form}", f"assigned-by-{form}"} <= {path.name for path in agent.files.iterdir()}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_older_agents_take_an_assignment_with_a_commit_and_a_removal_with_a_message(mixed: Fleet) -> None:
    site = Path(mixed.write("versioned/manifest.yaml", manifest(a_file("versioned")))).parent
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words], cwd=site, check=True)

    assigned = mixed.ctl("assign", "versioned", str(site), "-t", "role=web", "--yes", "--json")
    status = mixed.ctl("assignment", "status", "versioned", "--wait", "60s", "--json")
    ended = mixed.ctl("unassign", "versioned", "--message", "the test is over", "--yes")
    again = mixed.ctl(
        "assign", "versioned", str(site), "-t", "role=web", "--interval", "1h", "--yes", "--json"
    )
    after = mixed.ctl("assignment", "status", "versioned", "--wait", "60s", "--json")
    history = mixed.ctl("assignment", "history", "versioned", "--json").named("assignment")

    for done in (assigned, status, ended, again, after):
        assert done.code == 0, done.err
    commit = assigned.named("assignment")[0]["commit"]
    assert len(commit) == 40
    assert [(one.get("removed"), one.get("commit"), one.get("message")) for one in history] == [
        (None, commit, None),
        (True, None, "the test is over"),
        (None, commit, None),
    ]


def test_run_that_is_stopped_has_ended_for_controllers_of_both_forms(mixed: Fleet, released: Path) -> None:
    path = mixed.write("gated.yaml", manifest(a_file("before"), a_gate(), a_file("after")))
    running = mixed.begin("apply", path, "-t", "role=web", "--yes", "--json", code=released)
    mixed.wait_for(lambda: running.so_far.changed("before") >= {"old1", "new1"}, "both to be at the gate")

    stopped = mixed.ctl("run", "stop", running.so_far.run)
    mixed.open_gates()
    done = running.end()
    shown = mixed.ctl("run", "show", done.run, "--json")

    assert (stopped.code, done.code) == (0, 2), stopped.err
    assert done.states == {"old1": "failed", "new1": "failed"}
    assert shown.states == {"old1": "failed", "new1": "stopped"}
    assert done.reasons == {"old1": "stopped", "new1": "stopped by tester (unverified)"}


@pytest.mark.parametrize("order", ["resume", "abort"])
def test_rollout_over_both_forms_continues_or_ends_after_its_driver_was_interrupted(
    mixed: Fleet, order: str
) -> None:
    for name in ("old1", "new1"):
        for path in mixed.agents[name].files.iterdir():
            path.unlink()
    site = mixed.write("gated.yaml", manifest(a_file("begun"), a_gate(), a_file("ended")))
    waves = mixed.write(
        "waves.yaml", '{"waves": [{"name": "older", "selector": "node=old1"}, {"name": "rest"}]}'
    )
    driven = mixed.begin("apply", site, "-t", "role=web", "--rollout", waves, "--yes", "--json")
    mixed.wait_for((mixed.agents["old1"].files / "at-go").exists, "the older agent to be at the gate")
    driven.process.send_signal(signal.SIGINT)
    run = driven.end().run

    if order == "abort":
        done = mixed.ctl("run", "abort", run)
        mixed.open_gates()
    else:
        mixed.open_gates()
        done = mixed.ctl("run", "resume", run, "--json")
    mixed.wait_for(lambda: mixed.ctl("run", "list", "--json").records[0]["state"] == "done", "the run to end")
    shown = mixed.ctl("run", "show", run, "--json")
    ended = [(mixed.agents[name].files / "ended").exists() for name in ("old1", "new1")]

    assert done.code == 0, done.err
    if order == "abort":
        assert (shown.states, ended) == ({"old1": "failed", "new1": "skipped"}, [False, False])
    else:
        assert (shown.states, ended) == ({"old1": "changed", "new1": "changed"}, [True, True])
    assert all(numbers == sorted(set(numbers)) for numbers in mixed.stored(run).values())


def test_agent_is_upgraded_in_place_with_a_filled_spool(tmp_path: Path, released: Path) -> None:
    with fleet(tmp_path / "fleet") as site:
        site.add("web1", code=released)
        assert site.ctl("facts", "set", "web1", "role=web").code == 0
        folder = str(Path(site.write("app/manifest.yaml", manifest(a_file("app")))).parent)
        assert site.ctl("assign", "app", folder, "-t", "role=web", "--yes").code == 0
        assert site.ctl("assignment", "status", "app", "--wait", "60s").code == 0
        path = site.write("big.yaml", manifest(*(a_file(f"f{number}") for number in range(200))))
        run = site.begin("apply", path, "-t", "role=web", "--yes", "--json")
        agent = site.agents["web1"]
        site.wait_for(lambda: (agent.files / "f20").exists(), "the run to be under way")
        site.broker.pause()
        site.wait_for(lambda: (agent.files / "f150").exists(), "the spool to fill")
        agent.kill()
        site.broker.resume()
        run.end()

        agent.code = TOP
        agent.start()
        site.wait_present(["web1"])
        done = site.ctl("assignment", "status", "app", "--wait", "60s", "--json")
        shown = site.ctl("run", "show", run.so_far.run, "--json")

        assert [one["state"] for one in done.named("standing")] == ["converged"]
        assert shown.states["web1"] in ("failed", "changed")
        stored = site.stored(run.so_far.run)
        assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in stored.values()), stored


def test_released_agent_stays_in_a_secured_fleet_until_it_is_upgraded(tmp_path: Path, released: Path) -> None:
    require_server()
    server = NatsServer(ServerSettings(directory=tmp_path / "nats"))
    site = Fleet(tmp_path / "fleet", [server])
    keys = site.directory / "home" / ".config" / "ccm" / "keys"
    try:
        assert site.ctl("init", "--security", "--allow-unsigned", "30d").code == 0
        extra = (keys / "nats-security.conf").read_text()
        server.settings = msgspec.structs.replace(server.settings, extra=extra)
        server.start()
        site.environ |= {"NATS_URL": server.url, "CCM_CREDS": str(keys / "tester.creds")}
        assert site.ctl("init", "--security").code == 0
        for name, code in (("old1", released), ("new1", TOP)):
            creds = Path(site.write(f"{name}.creds", site.ctl("node", "add", name).out))
            creds.chmod(0o600)
            site.add(name, code=code, nats={"url": server.url, "creds": str(creds)})
        assert site.ctl("facts", "set", "old1", "new1", "role=web").code == 0
        path = site.write("site.yaml", manifest(a_file("here")))

        first = site.ctl("apply", path, "-t", "role=web", "--yes", "--json")
        assert site.ctl("signers", "allow-unsigned", "--end").code == 0
        assert site.ctl("signers", "publish").code == 0
        upgraded = site.agents["old1"]
        upgraded.stop()
        upgraded.code = TOP
        upgraded.start()
        site.wait_present(["old1"])
        second = site.ctl("apply", path, "-t", "role=web", "--yes", "--json")
        nodes = site.ctl("nodes", "--json").named("node")

        assert (first.code, first.states) == (0, {"old1": "changed", "new1": "changed"}), first.err
        assert (second.code, second.states) == (0, {"old1": "stable", "new1": "stable"}), second.err
        assert {one["node"]: one["signatures"] for one in nodes} == {"old1": True, "new1": True}
    finally:
        site.close()


def test_released_agent_runs_the_first_schedule_of_a_scope_and_refuses_further_ones(
    mixed: Fleet, released: Path
) -> None:
    def add(name: str) -> Done:
        path = mixed.write(f"{name}.yaml", manifest(a_file(name)))
        return mixed.ctl("schedule", "add", name, path, "--every", "1s", "-t", "role=web", "--yes", "--json")

    first, second = add("first"), add("second")
    old, new = (mixed.agents[name].files for name in ("old1", "new1"))
    mixed.wait_for(lambda: (old / "first").exists() and (new / "first").exists(), "the first to be due")
    mixed.wait_for((new / "second").exists, "the second to be due")
    mixed.wait_for(lambda: "apply-second.request" in mixed.agents["old1"].log, "the older agent to refuse it")
    shown_there = mixed.ctl("schedule", "list", "--json", code=released).records
    removed_there = mixed.ctl("schedule", "rm", "second", code=released)
    left = mixed.ctl("schedule", "list", "--json").records

    assert (first.code, first.err) == (0, "")
    assert (second.code, second.records[0]["refused_by"]) == (0, ["old1"])
    assert second.err == (
        "ccmctl: warning: old1: the agent is too old for a second schedule of role=web and refuses second; upgrade it, "
        "or remove the other schedule first\n"
    )
    assert not (old / "second").exists()
    assert [one["name"] for one in shown_there] == ["first", "second"]
    assert (removed_there.code, [one["name"] for one in left]) == (0, ["first"])
    assert mixed.ctl("schedule", "rm", "first", "--yes").code == 0


async def send_to_all(broker: NatsServer, targets: list[str], text: str) -> str:
    """Send a manifest to all nodes with a selector, whatever the agents know; the run."""
    request = ManifestRequest(
        protocol=MANIFEST_APPLY,
        run=new_id(),
        time=datetime.now(UTC),
        name="pattern",
        targets=targets,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        manifest=text,
    )
    async with raw_client(broker) as client:
        headers = f"NATS/1.0\r\n{SENT}: 1\r\n\r\n".encode()
        await client.publish(
            request_subject(MANIFEST_APPLY, "all").encode(), msgspec.json.encode(request), headers
        )
    return request.run


def test_released_agent_takes_no_pattern_for_a_plain_value(mixed: Fleet) -> None:
    path = mixed.write("pattern.yaml", manifest(a_file("by-pattern")))
    site = mixed.write("pattern/manifest.yaml", manifest(a_file("assigned-by-pattern")))
    new, old = (mixed.agents[name].files / "by-pattern" for name in ("new1", "old1"))
    assert mixed.ctl("facts", "set", "old1", "tier=db2").code == 0

    applied = mixed.ctl("apply", path, "-t", "tier!=db*", "--yes", "--json")
    both = mixed.ctl("apply", path, "-t", "role=w?b", "--noop", "--json")
    assigned = mixed.ctl("assign", "pattern", str(Path(site).parent), "-t", "tier!=db*", "--yes")
    was_there = new.exists(), old.exists()
    new.unlink()
    asyncio.run(send_to_all(mixed.broker, ["tier!=glob(db*)"], Path(path).read_text()))
    mixed.wait_for(new.exists, "the agent that knows patterns")
    after = mixed.ctl("apply", path, "-t", "node=old1", "--noop", "--json")

    assert (applied.code, applied.states) == (0, {"new1": "changed"}), applied.err
    assert both.states.keys() == {"new1", "old1"}
    assert (assigned.code, assigned.err) == (
        1,
        "ccmctl: old1: the agent is too old for `*`, `?` or list values in the targets of an assignment; "
        "upgrade it, or select by other facts\n",
    )
    assert was_there == (True, False)
    assert after.states == {"old1": "changed"}  # it would create the file, which nothing created


async def send_part(broker: NatsServer, node: str, text: str) -> None:
    """Send a part of a manifest to a node, whatever its agent knows."""
    request = ManifestRequest(
        protocol=MANIFEST_APPLY,
        run=new_id(),
        time=datetime.now(UTC),
        name="part",
        digest=hashlib.sha256(text.encode()).hexdigest(),
        part=PartialManifest(tags=("web",), manifest=text),
    )
    subject = request_subject(MANIFEST_APPLY, f"node.{node}")
    async with raw_client(broker) as client:
        headers = f"NATS/1.0\r\n{SENT}: 1\r\n\r\n".encode()
        await client.publish(subject.encode(), msgspec.json.encode(request), headers)


def test_released_agent_applies_nothing_of_a_part_that_it_does_not_know(mixed: Fleet) -> None:
    site = mixed.write("part.yaml", manifest(a_file("wanted"), a_file("unwanted")))
    new, old = (mixed.agents[name].files for name in ("new1", "old1"))
    only = ("--only", f"file#{new}/wanted", "--only", f"file#{old}/wanted")

    refused = mixed.ctl("apply", site, "-t", "role=web", "--yes", *only)
    applied = mixed.ctl("apply", site, "-t", "node=new1", "--yes", "--json", *only)
    asyncio.run(send_part(mixed.broker, "old1", Path(site).read_text()))
    mixed.wait_for(
        lambda: "the manifest is not what its digest says" in mixed.agents["old1"].log, "its error"
    )

    assert (refused.code, refused.err) == (
        1,
        "ccmctl: old1: the agent is too old for --only and --tags; upgrade it, or select other nodes\n",
    )
    assert (applied.code, applied.states) == (0, {"new1": "changed"})
    assert ((new / "wanted").exists(), (new / "unwanted").exists()) == (True, False)
    assert not (old / "wanted").exists()
    assert not (old / "unwanted").exists()

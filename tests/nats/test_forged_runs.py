"""
Records of runs that the holder of the broker changed, or that an operator made up, on a broker with security.

`run retry`, `run resume` and `undo` sign what they read in a record. Each attack stands beside the same steps by an operator who
has the right.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.subjects import encode_token
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.records.run_records import NodeEnd, RunEnds, RunRecord
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest, NodeState
from ccm_ctl.app import Broker, ConnectionOptions, bus_settings, connected
from ccm_ctl.fleet.nodes.nodes import TargetSet
from ccm_ctl.fleet.runs.run_request import prepare, put_on_record
from tests.support.fleet import a_file, manifest
from tests.support.secured import Secured, secured_fleet
from tests.support.signing import OWN

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

FAILS = "- exec: [{false: {command: '/bin/false'}}]\n"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The node web1 (role=web); bob applies there, lou may only plan there, and tester may do everything."""
    with secured_fleet(tmp_path_factory.mktemp("forged-runs")) as one:
        one.give("operator", "lou", "--plan", "role=web")
        one.fleet.wait_for(
            lambda: (
                one.as_(
                    "lou", "plan", one.fleet.write("p.yaml", manifest(a_file("p"))), "-t", "role=web"
                ).code
                == 0
            ),
            "the node to know lou",
        )
        yield one


def as_operator(secured: Secured, name: str) -> AbstractAsyncContextManager[Broker]:
    """A connection with an operator's credentials."""
    creds = secured.keys / "tester.creds" if name == "tester" else secured.directory / f"{name}.creds"
    environ = {**secured.fleet.environ, "CCM_CREDS": str(creds)}
    return connected(bus_settings(ConnectionOptions(), environ))


def has_file(secured: Secured, name: str) -> bool:
    return (secured.fleet.agents["web1"].files / name).exists()


def record_failure(secured: Secured, operator: str, request: ManifestRequest, name: str) -> str:
    """An operator puts an apply of role=web on record as this version does, with the end that web1 did not get it; the run."""

    async def write() -> str:
        async with as_operator(secured, operator) as broker:
            resolved = TargetSet(
                nodes=["web1"], offline=[], scopes=["fact.role.web"], targets=["role=web"], where=""
            )
            launch = prepare(broker.fleet, request, resolved, "apply", name, base=OWN)
            await put_on_record(broker.fleet, launch)
            run = launch.record.run
            ends = RunEnds(run=run, nodes={"web1": NodeEnd(state=str(NodeState.UNREACHABLE))})
            await broker.fleet.runs.put(f"{encode_token(operator)}.{run}.ends.0", msgspec.json.encode(ends))
            return run

    return asyncio.run(write())


def stored_bundle(secured: Secured, file: str) -> dict[str, Any]:
    """A bundle with a manifest that writes a file, uploaded by an honest plan of lou; the request on its record."""
    folder = secured.directory / f"site-{file}"
    folder.mkdir(exist_ok=True)
    (folder / "manifest.yaml").write_text(manifest(a_file(file)))
    planned = secured.as_("lou", "plan", str(folder), "-t", "role=web", "--json")
    assert planned.code == 0, planned.err

    async def read() -> dict[str, Any]:
        async with as_operator(secured, "lou") as broker:
            entry = await broker.fleet.runs.get(f"{encode_token('lou')}.{planned.run}.request")
            assert entry is not None
            request: dict[str, Any] = json.loads(entry.value)["request"]
            return request

    return asyncio.run(read())


def applying(secured: Secured, file: str) -> ManifestRequest:
    planned = stored_bundle(secured, file)
    return ManifestRequest(
        protocol=MANIFEST_APPLY,
        name="hard",
        digest=planned["digest"],
        bundle=msgspec.convert(planned["bundle"], Bundle),
    )


def change_record(
    secured: Secured, operator: str, run: str, change: Callable[[RunRecord], RunRecord]
) -> None:
    """The broker changes a record in place, and keeps the header of its signature."""

    async def write() -> None:
        async with as_operator(secured, operator) as broker:
            key = f"{encode_token(operator)}.{run}.request"
            entry = await broker.fleet.runs.get(key)
            assert entry is not None
            body = msgspec.json.encode(change(msgspec.json.decode(entry.value, type=RunRecord)))
            await broker.fleet.runs.store_signed(key, body, entry.revision, entry.signature)

    asyncio.run(write())


@pytest.mark.parametrize(("author", "is_right"), [("bob", True), ("lou", False)])
def test_an_apply_is_retried_if_its_author_could_have_sent_it(
    secured: Secured, author: str, is_right: bool
) -> None:
    """lou may plan only; the record says that lou applied."""
    file = f"retried-{author}"
    run = record_failure(secured, author, applying(secured, file), "hard")

    retried = secured.as_("tester", "run", "retry", run, "--yes")

    assert (retried.code, has_file(secured, file)) == (0 if is_right else 1, is_right), retried.err
    if not is_right:
        assert f"{run[:8]}: lou wrote its record, but may not apply on fact.role.web" in retried.err


def test_a_record_that_the_broker_changed_is_marked_and_not_retried(secured: Secured) -> None:
    genuine, other = applying(secured, "genuine"), applying(secured, "exchanged")
    run = record_failure(secured, "tester", genuine, "site")
    control = secured.as_("tester", "run", "retry", run, "--yes")
    before = secured.as_("tester", "run", "show", run, "--json").named("run")[0]
    exchanged = msgspec.to_builtins(other.bundle)

    change_record(
        secured,
        "tester",
        run,
        lambda record: replace(
            record, request=record.request | {"bundle": exchanged, "digest": exchanged["digest"]}
        ),
    )
    retried = secured.as_("tester", "run", "retry", run, "--yes")
    shown = secured.as_("tester", "run", "show", run)
    listed = {one["run"]: one for one in secured.as_("bob", "run", "list", "--json").named("run")}

    reason = "the content was changed after signing"
    assert (control.code, has_file(secured, "genuine")) == (0, True), control.err
    assert (retried.code, has_file(secured, "exchanged")) == (1, False)
    assert f"its record is unverified: {reason}; ccmctl signs nothing that is based on it" in retried.err
    assert "unverified" not in before
    assert f"unverified: {reason}" in shown.out
    assert listed[run]["unverified"] == reason
    assert "unverified" not in listed[control_run(secured, run)]


def control_run(secured: Secured, run: str) -> str:
    """The run that retried a run."""

    async def find() -> str:
        async with as_operator(secured, "tester") as broker:
            for entry in await broker.fleet.runs.matching([f"{encode_token('tester')}.*.request"]):
                if json.loads(entry.value).get("retry_of") == run:
                    return str(json.loads(entry.value)["run"])
        raise AssertionError(run)

    return asyncio.run(find())


def test_a_record_whose_nodes_the_broker_changed_is_not_retried(secured: Secured) -> None:
    run = record_failure(secured, "tester", applying(secured, "nodes"), "site")

    async def exchange() -> None:
        async with as_operator(secured, "tester") as broker:
            key = f"{encode_token('tester')}.{run}.targets.0"
            body = msgspec.json.encode({"run": run, "nodes": ["web1", "db1"], "offline": []})
            await broker.fleet.runs.put(key, body)

    asyncio.run(exchange())
    retried = secured.as_("tester", "run", "retry", run, "--yes")

    assert (retried.code, has_file(secured, "nodes")) == (1, False)
    assert "its list of nodes was changed after signing" in retried.err


def test_an_undo_is_shown_as_one_and_retried_for_its_author_only(secured: Secured) -> None:
    """A record that calls itself `apply hard` undoes what an administrator hardened."""
    hardened = secured.as_(
        "tester",
        "apply",
        secured.fleet.write("hard.yaml", manifest(a_file("hard"))),
        "--all",
        "--yes",
        "--json",
    )
    undoing = ManifestRequest(protocol=MANIFEST_APPLY, name="hard", undo=hardened.run)
    forged = record_failure(secured, "lou", undoing, "hard")

    listed = {one["run"]: one for one in secured.as_("bob", "run", "list", "--json").named("run")}
    shown = secured.as_("bob", "run", "show", forged).out.splitlines()[0]
    retried = secured.as_("tester", "run", "retry", forged, "--yes")
    still_there = has_file(secured, "hard")
    rightful = record_failure(secured, "bob", undoing, "hard")
    control = secured.as_("tester", "run", "retry", rightful, "--yes")

    assert hardened.code == 0, hardened.err
    assert listed[forged]["action"] == "undo"
    assert f": undo {hardened.run[:8]} by lou" in shown
    assert (retried.code, still_there) == (1, True)
    assert "lou wrote its record, but may not undo on fact.role.web" in retried.err
    assert (control.code, has_file(secured, "hard")) == (0, False), control.err


def test_undo_needs_a_record_of_an_operator_who_could_have_changed_the_nodes(secured: Secured) -> None:
    """The record of an administrator's run is gone; an operator who may only plan writes another under its id."""
    path = secured.fleet.write("kept.yaml", manifest(a_file("kept")))
    applied = secured.as_("tester", "apply", path, "--all", "--yes", "--json")

    async def replace_record() -> None:
        token = encode_token("tester")
        async with as_operator(secured, "tester") as broker:
            kept = await broker.fleet.runs.matching([f"{token}.{applied.run}.>"])
            for entry in kept:
                await broker.fleet.runs.delete(entry.key)
        async with as_operator(secured, "lou") as broker:
            resolved = TargetSet(nodes=["web1"], offline=[], scopes=["all"], targets=[], where="")
            request = ManifestRequest(protocol=MANIFEST_APPLY, name="motd")
            launch = prepare(broker.fleet, request, resolved, "apply", "motd", base=OWN)
            record = replace(launch.record, run=applied.run)
            await put_on_record(broker.fleet, replace(launch, record=record))

    own = secured.as_("tester", "undo", applied.run, "--noop")
    asyncio.run(replace_record())
    undone = secured.as_("tester", "undo", applied.run, "--yes")

    assert own.code == 0, own.err
    assert (undone.code, has_file(secured, "kept")) == (1, True)
    assert "lou wrote its record, but may not apply on all" in undone.err


def test_an_unsigned_record_of_an_older_controller_is_shown_and_not_retried(secured: Secured) -> None:
    request = applying(secured, "older")
    run = record_failure(secured, "tester", request, "site")

    async def strip() -> None:
        async with as_operator(secured, "tester") as broker:
            key = f"{encode_token('tester')}.{run}.request"
            entry = await broker.fleet.runs.get(key)
            assert entry is not None
            await broker.fleet.runs.put(key, entry.value)

    asyncio.run(strip())
    retried = secured.as_("tester", "run", "retry", run, "--yes")
    shown = secured.as_("tester", "run", "show", run)

    assert (retried.code, shown.code, has_file(secured, "older")) == (1, 0, False)
    assert f"{run[:8]}: its record is unverified: it is not signed; " in retried.err
    assert "start a new run" in retried.err
    assert "unverified: it is not signed" in shown.out


def test_last_is_never_a_run_of_another_operator(secured: Secured) -> None:
    run = record_failure(secured, "bob", applying(secured, "not-last"), "hard")
    assert secured.as_("tester", "run", "show", run).code == 0

    shown = secured.as_("tester", "run", "show", "last", "--json").named("run")[0]
    own = secured.as_("bob", "run", "show", "last", "--json").named("run")[0]

    assert (shown["requester"], own["run"]) == ("tester", run)

"""Notifications on a real broker: rules, a server, a failed run, and a server that is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Controller, Fleet, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

FAILS = manifest(("exec", "fails", {"command": "sh -c 'exit 3'"}))


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path) as made:
        made.add("web1")
        yield made


def texts(out: Path) -> list[str]:
    return [json.loads(file.read_text())["text"] for file in sorted(out.iterdir()) if file.suffix != ".new"]


def script_for(folder: Path, out: Path) -> Path:
    """A command that keeps each notification it gets as a file."""
    out.mkdir()
    script = folder / "take"
    script.write_text(
        f"#!/bin/sh\ncat > {out}/$CCM_NOTIFY_ID.new && mv {out}/$CCM_NOTIFY_ID.new {out}/$CCM_NOTIFY_ID\n"
    )
    script.chmod(0o700)
    return script


def serve(fleet: Fleet, rules: Path, state: Path) -> Controller:
    server = fleet.begin("rollout", "serve", "--notify", str(rules), "--notify-state", str(state))
    fleet.wait_for(state.exists, "the first look of the server")
    return server


def test_failed_runs_reach_the_command_also_those_from_while_the_server_was_down(
    one: Fleet, tmp_path: Path
) -> None:
    rules, state, out = tmp_path / "notify.yaml", tmp_path / "notify.json", tmp_path / "out"
    script = script_for(tmp_path, out)
    added = one.ctl(
        "notify", "add", "log", "--on", "run.failed || failed && node == 'web1'", "--exec", str(script), "--file", str(rules)
    )  # fmt: skip
    tested = one.ctl("notify", "test", "log", "--file", str(rules))
    assert (added.code, tested.code) == (0, 0), (added.err, tested.err)
    assert texts(out) == ["test of a notification rule by ccmctl notify test"]

    server = serve(one, rules, state)
    first = one.ctl("apply", one.write("site.yaml", FAILS), "--all", "--yes", "--json")
    one.wait_for(lambda: sum(first.run[:8] in text for text in texts(out)) == 1, "the first notification")
    server.kill()
    second = one.ctl("apply", one.write("site.yaml", FAILS), "--all", "--yes", "--json")
    assert not any(second.run[:8] in text for text in texts(out))
    server = serve(one, rules, state)
    one.wait_for(lambda: any(second.run[:8] in text for text in texts(out)), "the second notification")
    server.kill()

    assert sum(first.run[:8] in text for text in texts(out)) == 1
    assert any("web1: site failed: " in text for text in texts(out))


def test_a_rollout_that_pauses_is_reported_with_what_it_is_and_how_it_goes_on(
    one: Fleet, tmp_path: Path
) -> None:
    rules, state, out = tmp_path / "notify.yaml", tmp_path / "notify.json", tmp_path / "out"
    script = script_for(tmp_path, out)
    conditions = {"paused": "paused && run.name == 'site'", "ended": "kind == 'run' && run.failed"}
    for name, condition in conditions.items():
        words = ["notify", "add", name, "--on", condition, "--exec", str(script), "--file", str(rules)]
        assert one.ctl(*words).code == 0
    one.add("web2")
    serve(one, rules, state)

    rollout = one.ctl("apply", one.write("site.yaml", FAILS), "--all", "--yes", "--json", "--batch", "1")
    run = rollout.run[:8]
    paused = (
        f"rollout {run} (apply site by tester on all nodes, 2 nodes) is paused: 1 node failed; the limit is 0\n"
        f"  continue:  ccmctl run resume {run}\n  abort:     ccmctl run abort {run}"
    )
    one.wait_for(lambda: paused in texts(out), "the notification of the pause")
    aborted = one.ctl("run", "abort", run)
    ended = f"run {run} (apply site by tester) ended: 1 failed, 1 skipped"

    assert aborted.code == 0, aborted.err
    one.wait_for(lambda: any(text.startswith(ended) for text in texts(out)), "the notification of the end")

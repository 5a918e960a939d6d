"""Failures that an operator reads while other nodes are still at work, from a real broker and real agents."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fleet import FILES, Fleet, a_gate, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        built.add("web1", "web2")
        yield built


def a_site(pair: Fleet) -> str:
    """A manifest that fails on web1 and waits at a gate on web2."""
    pair.forget_files()
    (pair.agents["web1"].files / "bad").touch()
    kind, name, properties = a_gate()
    check = ("exec", "check", {"command": f"test ! -e {FILES}/bad"})
    return pair.write("site.yaml", manifest(check, (kind, name, {**properties, "require": ["exec#check"]})))


def test_a_run_names_a_node_that_failed_before_the_others_have_ended(pair: Fleet) -> None:
    controller = pair.begin("apply", a_site(pair), "--all", "--yes")

    pair.wait_for(lambda: "web1: failed: exec#check: " in controller.so_far.err, "the failure to be named")
    code = controller.so_far.code
    pair.open_gates("web2")
    done = controller.end()

    assert (code, done.code) == (-1, 2)
    assert done.err.count("web1: failed") == 1
    assert "web2: " not in done.err


def test_waiting_for_an_assignment_names_a_node_that_failed_before_the_others_have_ended(pair: Fleet) -> None:
    assert pair.ctl("assign", "site", a_site(pair), "--all", "--yes").code == 0
    controller = pair.begin("assignment", "status", "site", "--wait", "60s")

    pair.wait_for(lambda: "web1: failed: exec#check" in controller.so_far.err, "the failure to be named")
    code = controller.so_far.code
    pair.open_gates("web2")
    done = controller.end()

    assert (code, done.code) == (-1, 2)
    assert "2 nodes: 1 converged, 1 failed\n" in done.out

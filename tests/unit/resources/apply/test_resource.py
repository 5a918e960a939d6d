"""The apply type: what it refuses, and that it always has something to do."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.resources.apply import TYPE
from ccm_agent.resources.apply.model import ApplyProperties, ApplyState
from ccm_agent.resources.apply.resource import check, decide, has_changed
from ccm_agent.resources.contract import DecisionContext


def state(changed: int = 0) -> ApplyState:
    return ApplyState(
        protocol=TYPE.state_protocol, type="apply", name="c", ensure="present", changed_count=changed
    )


@pytest.mark.parametrize("name", ["c.yaml", "sub/c.yaml", "../c.yaml", "/c.yaml", "./a:b.yaml"])
def test_a_path_is_a_name(name: str) -> None:
    check(ApplyProperties(name=name))


@pytest.mark.parametrize("name", ["http://h/c", "a:b.yaml", "obj://b/k"])
def test_a_url_is_not(name: str) -> None:
    with pytest.raises(PropertyError, match="is a URL"):
        check(ApplyProperties(name=name))


def test_there_is_always_one_step() -> None:
    for context in (DecisionContext(), DecisionContext(noop=True), DecisionContext(triggered_by="note#a")):
        assert len(decide(ApplyProperties(name="c"), state(), context).steps) == 1


def test_a_parent_changed_if_a_resource_of_the_child_did() -> None:
    assert (has_changed(state(), state()), has_changed(state(), state(2))) == (False, True)

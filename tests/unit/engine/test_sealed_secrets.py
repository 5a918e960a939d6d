"""Secrets in manifests and data: where their values go, and where they never do."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import ExpressionError, SecretNotSealedError
from ccm_agent.model.secret import OpenedSecret, Secret
from ccm_agent.policy.grant import Grant
from ccm_agent.resources.catalog import Catalog
from tests.support.engine import Bench, bench

VALUE = "hunter22-sealed"
NOT_SEALED = "secret mail: it is not sealed to this node; run `ccmctl secret sync mail`"


class Sealed:
    """The secrets of a node: `db` is sealed to it, no other one is."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def open(self, name: str) -> OpenedSecret:
        self.asked.append(name)
        if name != "db":
            raise SecretNotSealedError(NOT_SEALED)
        return OpenedSecret(Secret(VALUE), 1)


def bench_with(sealed: Sealed | None = None, **deps: Any) -> Bench:
    return bench(open_secret=(sealed or Sealed()).open, **deps)


def source(*resources: dict[str, Any], **top: Any) -> ManifestSource:
    listed = [one if "apply" in one or "exec" in one else {"note": one} for one in resources]
    return ManifestSource(text=json.dumps({**top, "ccm": {"resources": listed}}).encode(), name="m.yaml")


def told(on: Bench) -> str:
    return msgspec.json.encode([on.events, on.notes]).decode()


@pytest.mark.parametrize(
    "written",
    [
        "{{ secret('db') }}",
        "${ secret('db') }",
        "{{ Data.pw }}",
        "{{ lookup('data.pw') }}",
        "{{ Data.inner.list[0] }}",
        "{{ jet('[[ secret(\"db\") ]]') }}",
        "{{ template('{{ secret(\"db\") }}') }}",
    ],
)
@pytest.mark.parametrize("field", ["text", "later"])
async def test_the_value_reaches_the_resource_and_no_output(field: str, written: str) -> None:
    on = bench_with()
    data = {"pw": "secret://db", "inner": {"list": ["secret://db"]}}

    summary = await on.engine.apply(source({"name": "a", field: written}, data=data), on.options(diff=True))

    assert (summary.state, on.board.notes) == ("changed", {"a": VALUE})
    assert VALUE not in told(on)
    assert "***" in told(on)


async def test_a_secret_is_opened_once_in_a_run() -> None:
    sealed = Sealed()
    on = bench_with(sealed)

    await on.engine.apply(
        source({"name": "a", "text": "{{ secret('db') }}"}, {"name": "b", "later": "{{ secret('db') }}"}),
        on.options(),
    )

    assert sealed.asked == ["db"]


@pytest.mark.parametrize(
    "written",
    [
        {"text": "{{ secret('mail') }}"},
        {"later": "{{ secret('mail') }}"},
        {"later": "{{ Data.pw }}"},
        {"text": "x{{ Data.pw }}y"},
        {"later": "{{ lookup('data.pw') }}"},
        {"later": "{{ jet('[[ data.pw ]]') }}"},
    ],
)
async def test_a_secret_that_is_not_sealed_fails_only_what_uses_it(written: dict[str, str]) -> None:
    on = bench_with()

    summary = await on.engine.apply(
        source({"name": "a", **written}, {"name": "b", "text": "plain"}, data={"pw": "secret://mail"}),
        on.options(),
    )

    failed, other = on.events
    assert on.board.notes == {"b": "plain"}
    assert (failed.failed, failed.code, other.changed) == (True, "secret.not_sealed", True)
    assert NOT_SEALED in failed.error[0]
    assert summary.state == "failed"


@pytest.mark.parametrize("guess", ["secret('db')[0:1] == 'h'", "lookup('data.pw')[0:1] == 'h'"])
@pytest.mark.parametrize("grant", [Grant(who="ann"), Grant(who="lou", is_restricted=True)])
async def test_a_plan_of_an_operator_who_may_only_plan_opens_nothing(grant: Grant, guess: str) -> None:
    sealed = Sealed()
    on = bench_with(sealed)

    await on.engine.apply(
        source({"name": "a", "text": "x", "control": {"if": guess}}, data={"pw": "secret://db"}),
        on.options(noop=True, grant=grant),
    )

    (event,) = on.events
    assert sealed.asked == ([] if grant.is_restricted else ["db"])
    assert (event.skipped, event.changed) == (grant.is_restricted, not grant.is_restricted)


async def test_a_program_that_opens_no_secrets_says_so() -> None:
    on = bench()

    with pytest.raises(ExpressionError, match="only agents open secrets"):
        await on.engine.load(source({"name": "a", "text": "{{ secret('db') }}"}), on.options())


async def test_an_error_that_quotes_a_value_hides_it() -> None:
    on = bench_with()
    on.board.broken["a"] = "wrong"

    await on.engine.apply(source({"name": "a", "text": "{{ secret('db') }}"}), on.options())

    assert on.events[0].failed
    assert VALUE not in told(on)


@pytest.mark.parametrize("broken", ["", "unable"])
async def test_a_sensitive_resource_hides_its_values_output_and_errors(broken: str) -> None:
    on = bench()
    on.board.broken["a"] = broken

    await on.engine.apply(
        source({"name": "a", "text": "by the way", "sensitive": True}), on.options(diff=True)
    )

    (event,) = on.events
    fields = msgspec.to_builtins(event.properties)
    assert (fields["name"], fields["text"]) == ("a", "***")
    assert "by the way" not in told(on)
    assert "the pen is empty" not in told(on)
    assert event.failed is bool(broken)


async def test_a_resource_that_is_not_sensitive_shows_them() -> None:
    on = bench()
    on.board.broken["a"] = "unable"

    await on.engine.apply(source({"name": "a", "text": "by the way"}), on.options(diff=True))

    assert "by the way" in told(on)
    assert "the pen is empty" in told(on)


@pytest.mark.parametrize("as_resource", ["manifest", "ensure"])
async def test_a_secret_in_a_command_fails_the_resource_before_the_command_runs(as_resource: str) -> None:
    kind = Catalog().find("exec")
    on = bench(kind, open_secret=Sealed().open)
    properties = {"name": "login --password {{ secret('db') }}"}

    if as_resource == "manifest":
        await on.engine.apply(source({"exec": properties}), on.options())
    else:
        on.events.append(await on.engine.ensure("exec", properties, on.options()))

    event = on.events[0]
    assert (event.failed, event.code) == (True, "input.property")
    assert "the process list would show it" in event.error[0]
    assert on.runner.commands == []
    assert VALUE not in told(on)

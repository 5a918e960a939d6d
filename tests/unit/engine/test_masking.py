"""What leaves the process holds no secret, and on the bus no long or private text."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any

import pytest

from ccm_agent.engine import masking
from ccm_agent.model.formats.field_rules import PublishDigest, PublishNames, Sensitive
from ccm_agent.model.health import HealthCheck, HealthResult
from ccm_agent.model.outcome import OUTPUT_TAIL, TransactionEvent
from ccm_agent.model.secret import Masker
from ccm_agent.resources.exec import TYPE as EXEC
from ccm_agent.resources.exec.model import ExecProperties
from tests.support.engine import Board, NoteProperties, note_type

KIND = note_type(Board())


class PrivateProperties(NoteProperties, kw_only=True, omit_defaults=True):
    """A note with more that does not go over the bus as it is written."""

    pin: Annotated[str, Sensitive, PublishDigest] = ""
    words: Annotated[dict[str, str], PublishDigest] = {}
    subscribe: Annotated[list[str], PublishNames] = []


PRIVATE = note_type(Board(), properties=PrivateProperties)


def event(wanted: NoteProperties, **fields: Any) -> TransactionEvent:
    values: dict[str, Any] = {
        "protocol": "p",
        "event_id": "e",
        "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        "type": "note",
        "provider": "board",
        "name": wanted.name,
        "requested_ensure": "present",
        "final_ensure": "present",
        "duration": 1,
        "properties": wanted,
        "status": None,
        "error": [],
        "changed": False,
        "refreshed": False,
        "failed": False,
        "skipped": False,
        "noop": False,
        "unmet_requirements": [],
    }
    return TransactionEvent(**(values | fields))


def test_a_secret_is_masked_wherever_it_travels() -> None:
    masker = Masker()
    wanted = NoteProperties(name="a", pin="hunter22", words={"en": "hunter22!"})
    told = event(
        wanted,
        error=["the pin hunter22 is wrong"],
        output="hunter22\n",
        status={"text": "hunter22"},
        health_check=[HealthResult(status=2, output="got hunter22")],
        noop_message="Would have set hunter22",
    )

    masking.register_secrets(masker, KIND, wanted)
    found = masking.mask_event(told, KIND, masker)

    assert "hunter22" not in str(found)
    assert (found.error, found.output) == (["the pin *** is wrong"], "***\n")
    assert found.properties == {"name": "a", "pin": "***", "words": {"en": "***!"}}
    assert wanted.pin == "hunter22"


def test_credentials_are_removed_from_urls_and_quotations() -> None:
    masker = Masker()
    wanted = NoteProperties(name="a", url="https://me:p%40ss99@host/x")

    masking.register_secrets(masker, KIND, wanted)
    found = masking.mask_event(event(wanted, error=["p@ss99 and p%40ss99"]), KIND, masker)

    assert (found.properties["url"], found.error) == ("https://***@host/x", ["*** and ***"])


def test_an_event_without_secrets_keeps_its_properties_as_they_are() -> None:
    wanted = NoteProperties(name="a", text="x")

    assert masking.mask_event(event(wanted), KIND, Masker()).properties is wanted


def test_on_the_bus_content_is_a_digest_and_variables_are_names() -> None:
    wanted = PrivateProperties(name="a", text="héllo", subscribe=["A=1", "B=x=y", "C"])

    told = event(wanted)
    found = masking.shorten_for_bus(told, PRIVATE)

    digest = sha256("héllo".encode()).hexdigest()
    assert found.properties == {
        "name": "a",
        "text": f"sha256:{digest} (6 bytes)",
        "subscribe": ["A", "B", "C"],
    }
    assert told.properties is wanted


def test_of_a_mapping_that_is_digested_no_value_leaves() -> None:
    one, same, none = (
        masking.shorten_for_bus(event(PrivateProperties(name="a", words=words)), PRIVATE).properties
        for words in ({"de": "x", "en": "y"}, {"en": "y", "de": "x"}, {})
    )

    digest = sha256(b'{"de":"x","en":"y"}').hexdigest()
    assert one == same == {"name": "a", "words": f"sha256:{digest} (19 bytes)"}
    assert "words" not in none


def test_of_masked_values_not_even_a_digest_is_published() -> None:
    wanted = PrivateProperties(name="a", pin="hunter22")
    masker = Masker()
    masking.register_secrets(masker, PRIVATE, wanted)

    found = masking.shorten_for_bus(masking.mask_event(event(wanted), PRIVATE, masker), PRIVATE)

    assert found.properties["pin"] == "***"


def variables(subscribe: list[str]) -> tuple[PrivateProperties, Masker]:
    """A note whose `subscribe` holds environment variables, and a masker that knows them."""
    wanted = PrivateProperties(name="a", subscribe=subscribe)
    masker = Masker()
    masking.register_secrets(masker, PRIVATE, wanted)
    return wanted, masker


def test_values_of_an_environment_are_masked_in_the_output() -> None:
    wanted, masker = variables(["APP=some-value", "HOME=/root", "LC_ALL=C.UTF-8", "ON=true"])

    found = masking.mask_event(
        event(wanted, output="APP is some-value in /root, C.UTF-8, true"), PRIVATE, masker
    )

    assert found.output == "APP is *** in /root, C.UTF-8, true"
    assert found.properties["subscribe"] == ["APP=some-value", "HOME=/root", "LC_ALL=C.UTF-8", "ON=true"]


def test_a_value_of_an_environment_is_masked_in_names_only_if_its_variable_looks_secret() -> None:
    wanted, masker = variables(["MODE=production", "DB_PASSWORD=s3cret-word"])
    named = event(
        wanted,
        name="deploy production s3cret-word",
        alias="s3cret-word",
        unmet_requirements=["exec#s3cret-word", "file#/etc/production"],
        triggered_by="exec#s3cret-word",
        parent="apply#s3cret-word",
    )

    found = masking.mask_event(named, PRIVATE, masker)

    assert (found.name, found.alias) == ("deploy production ***", "***")
    assert found.unmet_requirements == ["exec#***", "file#/etc/production"]
    assert (found.triggered_by, found.parent) == ("exec#***", "apply#***")


def test_unrendered_templates_are_not_learned_as_secrets() -> None:
    masker = Masker()
    wanted = PrivateProperties(name="a", subscribe=["A={{ x }}"], pin="{{ y }}")

    masking.register_secrets(masker, PRIVATE, wanted, ("subscribe", "pin"))

    assert masker.is_idle


def test_tokens_in_urls_are_removed_from_every_field_and_quotation() -> None:
    masker = Masker()
    wanted = NoteProperties(
        name="get https://h/?sig=abcdef", plain="curl 'https://h/?access_token=ghijkl&n=1'"
    )

    masking.register_secrets(masker, KIND, wanted)
    found = masking.mask_event(event(wanted, error=["abcdef and ghijkl"]), KIND, masker)

    assert found.name == "get https://h/?sig=***"
    assert found.properties["plain"] == "curl 'https://h/?access_token=***&n=1'"
    assert found.error == ["*** and ***"]


def test_a_longer_output_that_was_cut_does_not_begin_with_the_end_of_a_secret_either() -> None:
    masker = Masker(["a-very-long-secret"])

    found = masking.mask_event(
        event(NoteProperties(name="a"), output="long-secret in a line", cut=["output"]), KIND, masker
    )

    assert found.output == "*** in a line"


def test_an_output_that_was_cut_does_not_begin_with_the_end_of_a_secret() -> None:
    masker = Masker(["a-very-long-secret"])
    output = "long-secret".ljust(OUTPUT_TAIL, ".")

    found = masking.mask_event(event(NoteProperties(name="a"), output=output), KIND, masker)

    assert found.output.startswith("***.")


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(
            {"http": {"http://a/": {"status": 200, "password": "hunter22", "request-headers": ["X-Key: k3yk3y"]}}},
            id="a mapping",
        ),
        pytest.param(
            "http:\n  http://a/: {status: 200, password: hunter22, request-headers: ['X-Key: k3yk3y']}\n",
            id="one text",
        ),
    ],
)  # fmt: skip
def test_secrets_of_a_health_check_are_masked_however_its_rules_are_written(rules: Any) -> None:
    masker = Masker()

    masking.register_rule_secrets(masker, HealthCheck(goss_rules=rules))

    assert masker.text("hunter22 and k3yk3y") == "*** and ***"


def test_rules_that_are_not_yaml_hold_no_secrets() -> None:
    masker = Masker()

    masking.register_rule_secrets(masker, HealthCheck(goss_rules="http: [a"))

    assert masker.is_idle


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        pytest.param("tool --db-password=hunter22 -v", "tool --db-password=*** -v", id="option with ="),
        pytest.param("curl -u me:hunter22 https://x", "curl -u me:*** https://x", id="user and password"),
        pytest.param("curl -u me https://x:80", "curl -u me https://x:80", id="user alone"),
        pytest.param(
            "curl -H 'Authorization: Bearer hunter22' x", "curl -H 'Authorization: Bearer ***' x", id="header"
        ),
        pytest.param("tool --token 'two words' -v", "tool --token '***' -v", id="next argument"),
        pytest.param("PGPASSWORD=hunter22 psql", "PGPASSWORD=*** psql", id="variable"),
        pytest.param("sh -c 'TOKEN=hunter22 tool'", "sh -c 'TOKEN=*** tool'", id="within a script"),
        pytest.param("tool --token-file=/etc/token", "tool --token-file=/etc/token", id="place of a secret"),
        pytest.param('TOKEN="$(cat /t)" tool', 'TOKEN="$(cat /t)" tool', id="command substitution"),
        pytest.param("tool --password-stdin --user me", "tool --password-stdin --user me", id="no value"),
        pytest.param("tool --name=hunter22", "tool --name=hunter22", id="another option"),
    ],
)
def test_arguments_whose_names_say_it_are_secret(command: str, shown: str) -> None:
    masker = Masker()

    masking.register_secrets(masker, EXEC, ExecProperties(name=command))

    assert masker.name(command) == shown


def test_a_long_command_is_searched_in_linear_time() -> None:
    command = "tool " + "a=" * 50_000 + "--password " * 50_000 + "-" * 100_000 + "x" * 1_000_000

    began = time.process_time()
    masking.register_secrets(Masker(), EXEC, ExecProperties(name=command))

    assert time.process_time() - began < 5

"""Entries of services: their rules, their bytes, and what Prometheus is told of them."""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccm_agent.model.errors import PropertyError, ProtocolError
from ccm_agent.model.records.registration import (
    ANNOTATIONS_LIMIT_BYTES,
    check_entry,
    decode_entry,
    encode_entry,
    instance_of,
    prometheus_file_sd,
)
from tests.support.registrations import an_entry


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="as it is"),
        pytest.param({"port": None}, id="no port"),
        pytest.param({"port": 65535, "priority": 255}, id="the largest numbers"),
        pytest.param({"address": "2001:db8::5"}, id="IPv6"),
        pytest.param({"ttl": "never"}, id="never"),
        pytest.param({"ttl": "1d"}, id="a day"),
        pytest.param({"cluster": "a-b_C9"}, id="all that a name may hold"),
    ],
)
def test_an_entry_that_can_be_published(fields: dict[str, Any]) -> None:
    check_entry(an_entry(**fields))


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"cluster": ""}, "$.cluster"),
        ({"cluster": "1st"}, "$.cluster"),
        ({"service": "web.api"}, "$.service"),
        ({"service": "web\n"}, "$.service"),
        ({"protocol": ">"}, "$.protocol"),
        ({"protocol": "hätte"}, "$.protocol"),
        ({"address": ""}, "$.address"),
        ({"address": "web1.example.com"}, "$.address"),
        ({"address": "fe80::1%eth0"}, "$.address"),
        ({"port": 0}, "$.port"),
        ({"port": 65536}, "$.port"),
        ({"port": "8080"}, "$.port"),
        ({"port": True}, "$.port"),
        ({"priority": 0}, "$.priority"),
        ({"priority": 256}, "$.priority"),
        ({"ttl": "soon"}, "$.ttl"),
        ({"ttl": "500ms"}, "$.ttl"),
        ({"annotations": {"a": "b\nserver evil"}}, "$.annotations"),
        ({"annotations": {"a\n": "b"}}, "$.annotations"),
    ],
)
def test_an_entry_that_cannot_be_published_is_refused_by_its_field(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check_entry(an_entry(**fields))

    assert caught.value.place is not None
    assert caught.value.place.path == path


@pytest.mark.parametrize(
    ("fields", "instance"),
    [
        pytest.param({}, "8615c9f698160162", id="as it is"),
        pytest.param({"port": None}, "ca0a1c02a9aaab02", id="Go prints a missing port in its own way"),
    ],
)
def test_the_instance_is_the_reference_s_digest(fields: dict[str, Any], instance: str) -> None:
    # fnv.New64a over cluster, service, protocol, address and fmt's %d of the port
    assert instance_of(an_entry(**fields)) == instance


def test_an_entry_is_written_as_the_reference_writes_it() -> None:
    entry = an_entry(ttl="10m", annotations={"b": "2", "a": "1"})

    assert encode_entry(entry) == (
        b'{"cluster":"prod","service":"web","protocol":"http","address":"10.0.0.1","port":8080,"priority":10,'
        b'"annotations":{"a":"1","b":"2"},"ttl":"10m0s"}'
    )


def test_an_entry_without_a_port_has_null_as_in_the_reference() -> None:
    assert json.loads(encode_entry(an_entry(port=None)))["port"] is None


def test_an_entry_is_read_back() -> None:
    entry = an_entry(ttl="10m0s", annotations={"a": "1"})

    assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        pytest.param({"more": 1}, {}, id="a field that we do not know"),
        pytest.param({"ttl": 600_000_000_000}, {"ttl": "10m0s"}, id="nanoseconds"),
        pytest.param({"ttl": None}, {}, id="no TTL"),
        pytest.param({"port": 8080.0}, {}, id="a whole float"),
        pytest.param({"annotations": None}, {}, id="no annotations"),
    ],
)
def test_records_of_other_writers_are_read(fields: dict[str, Any], read: dict[str, Any]) -> None:
    document = json.loads(encode_entry(an_entry())) | fields

    assert decode_entry(json.dumps(document).encode()) == an_entry(**read)


def a_document(more: bytes) -> bytes:
    """An entry as it stands on the bus, with another field."""
    return encode_entry(an_entry())[:-1] + b"," + more + b"}"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="no mapping"),
        pytest.param(b"{}", id="no fields"),
        pytest.param(b'{"cluster":1}', id="a number for a name"),
        pytest.param(encode_entry(an_entry(address="10.0.0.1 up\nserver evil")), id="more than an address"),
        pytest.param(encode_entry(an_entry(port=0)), id="a port that is none"),
        pytest.param(encode_entry(an_entry(priority=0)), id="no priority"),
        pytest.param(
            msgspec.json.encode({**msgspec.to_builtins(an_entry()), "ttl": []}), id="a list for a TTL"
        ),
        pytest.param(a_document(b'"ttl":1' + b"0" * 400), id="a TTL that no float holds"),
        pytest.param(a_document(b'"ttl":"%sh"' % (b"9" * 400)), id="a TTL that no program holds"),
        pytest.param(
            a_document(b'"new":' + b"[" * 2000 + b"]" * 2000), id="nested deeper than anybody reads"
        ),
        pytest.param(
            a_document('"annotations":{"a":"x\u2028server: evil"}'.encode()), id="a line for YAML more"
        ),
        pytest.param(a_document('"annotations":{"a":"\u009b2J"}'.encode()), id="an order to a terminal"),
        pytest.param(encode_entry(an_entry(annotations={"a": "x" * ANNOTATIONS_LIMIT_BYTES})), id="too much"),
    ],
)
def test_an_invalid_record_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_entry(body)


def test_prometheus_gets_the_services_marked_for_scraping() -> None:
    scraped = {"prometheus.io/scrape": "true", "env": "staging", "__meta": "x", "with space": "x", "none": ""}
    entries = [
        an_entry(annotations=scraped),
        an_entry(address="10.0.0.2", annotations={"prometheus.io/scrape": "true", "env": "other"}),
        an_entry(address="10.0.0.3"),
        an_entry(address="10.0.0.4", annotations={"prometheus.io/scrape": "false"}),
        an_entry(address="10.0.0.5", port=None, annotations=scraped),
    ]

    assert json.loads(prometheus_file_sd(entries)) == [
        {
            "labels": {"cluster": "prod", "env": "staging", "protocol": "http", "service": "web"},
            "targets": ["10.0.0.1:8080", "10.0.0.2:8080"],
        }
    ]


def test_a_service_or_protocol_named_prometheus_is_scraped_unless_disabled() -> None:
    entries = [
        an_entry(service="prometheus"),
        an_entry(protocol="prometheus", address="2001:db8::5"),
        an_entry(service="prometheus", address="10.0.0.9", annotations={"prometheus.io/scrape": "no"}),
    ]

    assert [group["targets"] for group in json.loads(prometheus_file_sd(entries))] == [
        ["10.0.0.1:8080"],
        ["[2001:db8::5]:8080"],
    ]


def test_prometheus_s_file_is_indented_and_escaped_as_go_writes_it() -> None:
    entries = [an_entry(service="prometheus", annotations={"who": "<a&b>"})]

    assert prometheus_file_sd(entries) == (
        '[\n  {\n    "labels": {\n      "cluster": "prod",\n      "protocol": "http",\n'
        '      "service": "prometheus",\n      "who": "\\u003ca\\u0026b\\u003e"\n    },\n'
        '    "targets": [\n      "10.0.0.1:8080"\n    ]\n  }\n]'
    )
    assert prometheus_file_sd([]) == "[]"


@given(text=st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){2,4}\n?", fullmatch=True))
@example(text="0.0.0.0")
@example(text="255.255.255.255")
@example(text="256.1.1.1")
@example(text="10.0.0.01")
@example(text="10.0.0.1\n")
def test_an_ipv4_address_is_accepted_exactly_when_python_accepts_it(text: str) -> None:
    try:
        ip_address(text)
    except ValueError:
        with pytest.raises(PropertyError, match="address"):
            check_entry(an_entry(address=text))
    else:
        check_entry(an_entry(address=text))

"""Errors of the broker name streams and buckets, not subjects of JetStream's API."""

from __future__ import annotations

import pytest

from ccm_agent.bus.connection.broker_errors import no_responders, place_of


@pytest.mark.parametrize(
    ("subject", "place"),
    [
        ("$JS.API.DIRECT.GET.KV_CCM_DATA", "bucket CCM_DATA"),
        ("$JS.API.DIRECT.GET.KV_CCM_DATA.$KV.CCM_DATA.common", "bucket CCM_DATA, key common"),
        ("$JS.API.DIRECT.GET.CCM_EVENTS", "stream CCM_EVENTS"),
        ("$JS.API.DIRECT.GET.OBJ_CCM_MANIFESTS.$O.CCM_MANIFESTS.M.x", "object store CCM_MANIFESTS"),
        ("$JS.API.STREAM.INFO.KV_CCM_NODES", "bucket CCM_NODES"),
        ("$JS.API.STREAM.MSG.GET.REGISTRATION", "stream REGISTRATION"),
        ("$JS.API.CONSUMER.CREATE.REGISTRATION.read-1.choria.>", "stream REGISTRATION"),
        ("$JS.API.CONSUMER.MSG.NEXT.REGISTRATION.read-1", "stream REGISTRATION"),
        ("$JS.API.INFO", "JetStream"),
        ("$JS.API.STREAM.NAMES", "JetStream"),
        ("$KV.CCM_DATA.web.example", "bucket CCM_DATA, key web.example"),
        ("$O.CCM_MANIFESTS.C.abc", "object store CCM_MANIFESTS"),
        (
            "io.choria.ccm.v1.manifest.apply.request.all",
            "io.choria.ccm.v1.manifest.apply.request.all",
        ),
    ],
)
def test_a_subject_is_named_by_its_stream_or_bucket(subject: str, place: str) -> None:
    assert place_of(subject) == place


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (
            "$JS.API.DIRECT.GET.KV_site",
            "the broker has no bucket site (create it with `nats kv add site`), or it has no leader now",
        ),
        (
            "$JS.API.DIRECT.GET.CCM_EVENTS",
            "the broker has no stream CCM_EVENTS (create it with `ccmctl init`), or it has no leader now",
        ),
        (
            "$O.CCM_MANIFESTS.M.x",
            "the broker has no object store CCM_MANIFESTS (create it with `ccmctl init`), or it has no leader now",
        ),
    ],
)
def test_a_missing_stream_is_named_with_the_command_that_creates_it(subject: str, message: str) -> None:
    assert no_responders(subject) == message

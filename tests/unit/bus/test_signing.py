"""Detached signatures: what is proven, and what is refused."""

from __future__ import annotations

import secrets

import nkeys
import pytest

from ccm_agent.bus.signatures.signing import (
    HEADER_LIMIT,
    SignatureError,
    SignatureKind,
    SigningKey,
    is_public_key,
    signing_key_in_credentials,
    verify,
)
from ccm_agent.model.errors import InputError
from ccm_agent.model.secret import Secret

NOW = 1_800_000_000_000
BODY = b'{"protocol":"x"}'
SUBJECT = "io.choria.ccm.v1.manifest.apply.request.all"


def new_key() -> SigningKey:
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    return SigningKey(Secret(seed.decode()))


def signed(key: SigningKey, **others) -> str:
    return key.sign(SignatureKind.REQUEST, SUBJECT, BODY, **({"issued_ms": NOW} | others))


def test_signature_proves_key_place_and_bytes():
    key = new_key()

    claims = verify(signed(key, run="r", number=7), SignatureKind.REQUEST, SUBJECT, BODY, now_ms=NOW)

    assert (claims.key, claims.subject, claims.run, claims.number) == (key.public_key, SUBJECT, "r", 7)


@pytest.mark.parametrize(
    ("kind", "subject", "body", "now_ms", "why"),
    [
        pytest.param(SignatureKind.SCHEDULE, SUBJECT, BODY, NOW, "for a request", id="another kind"),
        pytest.param(SignatureKind.REQUEST, f"{SUBJECT}x", BODY, NOW, "is for io", id="another subject"),
        pytest.param(SignatureKind.REQUEST, SUBJECT, BODY + b" ", NOW, "changed", id="another body"),
        pytest.param(
            SignatureKind.REQUEST, SUBJECT, BODY, NOW - 600_000, "future", id="before it was issued"
        ),
        pytest.param(SignatureKind.REQUEST, SUBJECT, BODY, NOW + 2000, "expired", id="after it expired"),
    ],
)
def test_signature_counts_only_where_and_when_it_was_made_for(kind, subject, body, now_ms, why):
    header = signed(new_key(), expires_ms=NOW + 1000)

    with pytest.raises(SignatureError, match=why):
        verify(header, kind, subject, body, now_ms=now_ms)


def test_claims_that_were_changed_after_signing_are_refused():
    key, other = new_key(), new_key()
    version, claims, signature = signed(key).split(".")
    _, others_claims, others_signature = signed(other).split(".")

    for header in (f"{version}.{others_claims}.{signature}", f"{version}.{claims}.{others_signature}"):
        with pytest.raises(SignatureError, match="changed after signing"):
            verify(header, SignatureKind.REQUEST, SUBJECT, BODY, now_ms=NOW)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "v1",
        "v1..",
        "v2.a.b",
        "v1.!!.!!",
        "v1.e30.e30",
        "x" * (HEADER_LIMIT + 1),
        "v1.\udcff.a",
        "v1.e30.é",
    ],
)
def test_malformed_header_is_refused_without_another_error(header):
    with pytest.raises(SignatureError):
        verify(header, SignatureKind.REQUEST, SUBJECT, BODY, now_ms=NOW)


def test_genuine_header_is_refused_when_it_is_padded_shortened_or_of_another_version():
    header = signed(new_key())
    verify(header, SignatureKind.REQUEST, SUBJECT, BODY, now_ms=NOW)
    long = signed(new_key(), details={"name": "x" * HEADER_LIMIT})

    for broken, why in (
        (f"v2{header[2:]}", "this version does not support"),
        (long, "characters long"),
        (header[:-4], "not valid"),
        (header.rpartition(".")[0], "not valid"),
        (f"v1..{header.rpartition('.')[2]}", "cannot be decoded"),
        ("", "not signed"),
    ):
        with pytest.raises(SignatureError, match=why):
            verify(broken, SignatureKind.REQUEST, SUBJECT, BODY, now_ms=NOW)


@pytest.mark.parametrize("field", ["issued_ms", "expires_ms", "number"])
@pytest.mark.parametrize("value", [-1, 1 << 53, 10**30])
def test_numbers_out_of_range_are_refused(field, value):
    header = signed(new_key(), **{field: value})

    with pytest.raises(SignatureError):
        verify(header, SignatureKind.REQUEST, SUBJECT, BODY, now_ms=NOW)


def test_key_is_found_in_credentials_and_in_a_file_with_a_seed_alone():
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER).decode()
    public = SigningKey(Secret(seed)).public_key
    creds = f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"

    assert [signing_key_in_credentials(text).public_key for text in (creds, f"{seed}\n")] == [public, public]
    assert signing_key_in_credentials("password") is None


def test_damaged_seed_is_an_error_that_does_not_show_it():
    with pytest.raises(InputError) as caught:
        SigningKey(Secret("SUAX"))

    assert "SUAX" not in str(caught.value)


def test_public_key_with_a_wrong_checksum_is_not_a_key():
    public = new_key().public_key
    other = "A" if public[-1] != "A" else "B"

    assert is_public_key(public)
    assert not is_public_key(public[:-1] + other)
    assert not is_public_key(public.lower())
    assert not is_public_key("é" * len(public))


@pytest.mark.parametrize("name", ["", "bob", "é" * 56])
def test_claims_of_a_signer_that_is_not_a_key_are_refused(name):
    key = new_key()
    genuine = signed(key)
    key.public_key = name

    verify(genuine, SignatureKind.REQUEST, SUBJECT, BODY, now_ms=NOW)
    with pytest.raises(SignatureError, match="is not valid"):
        verify(signed(key), SignatureKind.REQUEST, SUBJECT, BODY, now_ms=NOW)

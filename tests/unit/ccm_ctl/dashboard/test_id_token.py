"""Id tokens: each check that makes one true, with tokens made by hand."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from joserfc import jwk, jws

from ccm_ctl.dashboard.access import DashboardUser, Right
from ccm_ctl.dashboard.id_token import NoRightError, SignInError, UnknownKeyError, user_of, verified_claims
from ccm_ctl.dashboard.oidc_settings import OidcSettings

NOW = 1_700_000_000.0
ISSUER = "https://login.example.net"
SETTINGS = OidcSettings(
    issuer=ISSUER, client_id="board", rights={Right.ACT: ["admins"], Right.READ: ["staff", "admins"]}
)
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "aud": "board",
    "sub": "7",
    "exp": NOW + 300,
    "iat": NOW,
    "nonce": "n-1",
    "preferred_username": "ann",
    "groups": ["staff"],
}


def a_key(kid: str, kind: str = "EC") -> Any:
    size: Any = {"EC": "P-256", "RSA": 2048, "OKP": "Ed25519"}[kind]
    return jwk.generate_key(kind, size, {"kid": kid})  # type: ignore[arg-type]


KEY, OTHER = a_key("one"), a_key("two")
RSA = a_key("rsa", "RSA")
PUBLIC = [KEY.as_dict(private=False), RSA.as_dict(private=False)]


def signed(claims: dict[str, Any], key: Any = KEY, alg: str = "ES256", **header: Any) -> str:
    registry = jws.JWSRegistry(algorithms=[alg], strict_check_header=False)
    headers = {"alg": alg, "kid": key.kid, **header}
    return jws.serialize_compact(headers, json.dumps(claims), key, [alg], registry)


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def sealed(header: dict[str, Any]) -> str:
    """A token with exactly these headers, signed with the first key."""
    body = f"{part(header)}.{part(CLAIMS)}"
    made = jws.JWSRegistry.algorithms["ES256"].sign(body.encode(), KEY)
    return f"{body}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"


def verify(token: str, keys: list[dict[str, Any]] | None = None, nonce: str = "n-1") -> dict[str, Any]:
    return verified_claims(token, PUBLIC if keys is None else keys, SETTINGS, nonce, NOW)


@pytest.mark.parametrize(("key", "alg"), [(KEY, "ES256"), (RSA, "RS256"), (RSA, "PS512")])
def test_a_token_of_the_provider_is_accepted(key: Any, alg: str) -> None:
    assert verify(signed(CLAIMS, key, alg)) == CLAIMS


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"iss": "https://evil.example"}, "from another issuer", id="another issuer"),
        pytest.param({"iss": ISSUER + "/"}, "from another issuer", id="almost the issuer"),
        pytest.param({"iss": None}, "from another issuer", id="no issuer"),
        pytest.param({"aud": "other"}, "for another client", id="another client"),
        pytest.param({"aud": ["board", "other"]}, "for another client", id="two clients"),
        pytest.param({"aud": ["board"], "azp": "other"}, "for another client", id="given to another client"),
        pytest.param({"aud": {"board": 1}}, "for another client", id="an audience that is not text"),
        pytest.param({"exp": NOW - 61}, "has expired", id="expired"),
        pytest.param({"exp": None}, "no valid `exp`", id="without an end"),
        pytest.param({"exp": True}, "no valid `exp`", id="an end that is not a number"),
        pytest.param({"iat": NOW + 61}, "from the future", id="issued in the future"),
        pytest.param({"iat": None}, "no valid `iat`", id="without a time"),
        pytest.param({"nbf": NOW + 61}, "from the future", id="not valid yet"),
        pytest.param({"nonce": "n-2"}, "another sign-in", id="another nonce"),
        pytest.param({"nonce": None}, "another sign-in", id="no nonce"),
        pytest.param({"nonce": "\ud800"}, "not a token", id="a nonce that is not text"),
        pytest.param({"sub": ""}, "no valid `sub`", id="no subject"),
        pytest.param({"sub": "x" * 256}, "no valid `sub`", id="a long subject"),
        pytest.param({"sub": "a\nb"}, "no valid `sub`", id="a subject of two lines"),
    ],
)
def test_a_claim_that_does_not_fit_is_refused(change: dict[str, Any], problem: str) -> None:
    claims = {name: value for name, value in {**CLAIMS, **change}.items() if value is not None}

    with pytest.raises(SignInError, match=problem):
        verify(signed(claims))


def test_clocks_may_differ_by_a_minute() -> None:
    late = {**CLAIMS, "exp": NOW - 59, "iat": NOW - 400}
    early = {**CLAIMS, "iat": NOW + 59}

    assert (verify(signed(late)), verify(signed(early))) == (late, early)


def test_a_token_for_several_clients_that_was_given_to_this_one_is_accepted() -> None:
    claims = {**CLAIMS, "aud": ["other", "board"], "azp": "board"}

    assert verify(signed(claims)) == claims


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, 7])
def test_a_token_without_signature_is_refused(alg: object) -> None:
    token = f"{part({'alg': alg, 'kid': 'one'})}.{part(CLAIMS)}."

    with pytest.raises(SignInError, match=r"no signature with a public key|not signed by the provider"):
        verify(token)


@pytest.mark.parametrize("kid", ["rsa", "one", "secret"])
def test_a_token_signed_with_the_public_key_as_a_password_is_refused(kid: str) -> None:
    body = f"{part({'alg': 'HS256', 'kid': kid})}.{part(CLAIMS)}"
    made = hmac.digest(RSA.as_pem(private=False), body.encode(), "sha256")
    token = f"{body}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"

    with pytest.raises(SignInError, match="no signature with a public key"):
        verify(token)


def test_a_password_among_the_published_keys_signs_nothing() -> None:
    secret = jwk.generate_key("oct", 256, {"kid": "one"})
    token = jws.serialize_compact({"alg": "HS256", "kid": "one"}, json.dumps(CLAIMS), secret, ["HS256"])

    with pytest.raises(SignInError, match="no signature with a public key"):
        verify(token, [secret.as_dict(private=True)])


def test_a_token_of_an_unknown_key_is_refused() -> None:
    with pytest.raises(UnknownKeyError, match="does not publish"):
        verify(signed(CLAIMS, OTHER))


def test_a_token_of_another_key_with_the_name_of_a_known_one_is_refused() -> None:
    with pytest.raises(SignInError, match="not signed by the provider"):
        verify(signed(CLAIMS, OTHER, kid="one"))


def test_a_key_that_the_token_brings_along_is_not_used() -> None:
    with pytest.raises(SignInError, match="not signed by the provider"):
        verify(signed(CLAIMS, OTHER, kid="one", jwk=OTHER.as_dict(private=False)))


def test_a_header_that_must_be_understood_and_is_not_is_refused() -> None:
    with pytest.raises(SignInError, match="not signed by the provider"):
        verify(sealed({"alg": "ES256", "kid": "one", "crit": ["exp"], "exp": 1}))


@pytest.mark.parametrize(
    "change", [{"use": "enc"}, {"alg": "ES512"}, {"kty": "RSA"}], ids=["of encryption", "of ES512", "of RSA"]
)
def test_a_key_for_something_else_is_not_used(change: dict[str, str]) -> None:
    with pytest.raises(UnknownKeyError):
        verify(signed(CLAIMS), [{**KEY.as_dict(private=False), **change}])


@pytest.mark.parametrize("modulus", ["x" * 171, "A" * 200 + "x" * 171, "x" * 2000, "é", 7])
def test_a_key_of_a_wrong_size_is_not_used(modulus: object) -> None:
    weak = {"kty": "RSA", "kid": "rsa", "e": "AQAB", "n": modulus}

    with pytest.raises(UnknownKeyError):
        verify(signed(CLAIMS, RSA, "RS256"), [weak])


@pytest.mark.parametrize(
    "key", [{}, {"kty": "EC", "kid": "one"}, {"kty": "EC", "kid": "one", "crv": [], "x": 1}]
)
def test_a_key_that_is_none_fails_the_sign_in_only(key: dict[str, Any]) -> None:
    with pytest.raises(SignInError):
        verify(signed(CLAIMS), [key])


def test_without_a_name_the_only_key_of_the_kind_is_used() -> None:
    token = sealed({"alg": "ES256"})

    assert verify(token) == CLAIMS
    with pytest.raises(SignInError, match="does not name the key"):
        verify(token, [KEY.as_dict(private=False), OTHER.as_dict(private=False)])


@pytest.mark.parametrize(
    "token",
    ["", "..", "a.b.c", "a.b.c.d.e", "é.é.é", "x" * 70_000, f"{part([])}.{part([])}.x", "{}"],
    ids=["empty", "dots", "three words", "encrypted", "not ASCII", "huge", "lists", "JSON"],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(SignInError):
        verify(token)


def test_the_strongest_right_of_the_groups_holds() -> None:
    both = user_of({**CLAIMS, "groups": ["staff", "admins", 7]}, SETTINGS)

    assert both == DashboardUser(name="ann", right=Right.ACT, identity=f"{ISSUER}#7")
    assert user_of({**CLAIMS, "groups": "staff"}, SETTINGS).right is Right.READ


@pytest.mark.parametrize(
    "groups", [[], ["Admins"], ["admin"], {"admins": True}, [["admins"]], None, "adminsx"]
)
def test_a_user_without_a_group_with_a_right_is_refused(groups: object) -> None:
    with pytest.raises(
        NoRightError, match="recognizes you as ann, but none of your `groups` grants access here"
    ):
        user_of({**CLAIMS, "groups": groups}, SETTINGS)


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("realm_access.roles", {"realm_access": {"roles": ["staff"]}}),
        ("https://example.net/groups", {"https://example.net/groups": ["staff"]}),
    ],
)
def test_groups_come_from_the_claim_of_the_settings(name: str, claims: dict[str, Any]) -> None:
    settings = OidcSettings(
        issuer=ISSUER, client_id="board", rights={Right.READ: ["staff"]}, rights_claim=name
    )

    assert user_of({"sub": "7", **claims}, settings).right is Right.READ


@pytest.mark.parametrize(
    ("verified", "is_let_in"), [(True, True), (False, False), ("true", False), (None, False)]
)
def test_an_address_gives_a_right_if_the_provider_verified_it(verified: object, is_let_in: bool) -> None:
    settings = OidcSettings(
        issuer=ISSUER, client_id="board", rights={Right.ACT: ["ann@example.net"]}, rights_claim="email"
    )
    claims = {"sub": "7", "email": "ann@example.net", "email_verified": verified}

    if is_let_in:
        assert user_of(claims, settings).name == "ann@example.net"
    else:
        with pytest.raises(NoRightError):
            user_of(claims, settings)


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        pytest.param({"preferred_username": "José García"}, "José García", id="letters"),
        pytest.param({"email": "ann@example.net"}, "ann@example.net", id="an address"),
        pytest.param({}, "7", id="the subject"),
        pytest.param({"preferred_username": "<b>ann</b>"}, "_b_ann__b_", id="markup"),
        pytest.param({"preferred_username": "ann [https://a#1]"}, "ann _https___a_1_", id="an identity"),
        pytest.param({"preferred_username": "ann\n\u202eroot"}, "ann__root", id="control characters"),
        pytest.param({"preferred_username": "x" * 500}, "x" * 64, id="a long name"),
        pytest.param({"preferred_username": ["ann"]}, "7", id="a list"),
    ],
)
def test_the_name_is_one_line_without_markup(claims: dict[str, Any], name: str) -> None:
    assert user_of({"sub": "7", "groups": ["staff"], **claims}, SETTINGS).name == name


def test_two_users_with_one_name_are_two_on_record() -> None:
    users = [user_of({**CLAIMS, "sub": one}, SETTINGS).on_record for one in ("7", "8", "8#9 ]")]

    assert users == [f"ann [{ISSUER}#7]", f"ann [{ISSUER}#8]", f"ann [{ISSUER}#8%239%20%5D]"]

"""
The ID token: the provider's claims about a user, and the checks of these claims.

Source: OpenID Connect Core 1.0, section 3.1.3.7; RFC 8725 (JSON Web Token Best Current Practices).
"""

from __future__ import annotations

import base64
import hmac
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from ccm_agent.model.errors import CcmError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_ctl.dashboard.access import DashboardUser, Right
from ccm_ctl.dashboard.oidc_settings import OidcSettings

ALGORITHMS = {
    "RS256": "RSA", "RS384": "RSA", "RS512": "RSA", "PS256": "RSA", "PS384": "RSA", "PS512": "RSA",
    "ES256": "EC", "ES384": "EC", "ES512": "EC", "EdDSA": "OKP", "Ed25519": "OKP",
}  # fmt: skip
"""Accepted signature algorithms and their key types. All use public keys. `none` and HMAC (`HS…`) are not accepted."""

SKEW_S = 60
"""The maximum accepted difference, in seconds, between the clocks of the provider and of this host."""

TOKEN_BYTES = 64 << 10
SUBJECT_CHARACTERS = 255
NAME_CHARACTERS = 64
RSA_BITS = (2048, 8192)
"""The minimum and maximum accepted size of RSA keys, in bits. Smaller keys are weak, and larger keys are slow."""

_NOT_IN_A_NAME = re.compile(r"[^\w .@+-]")


class SignInError(CcmError):
    """The sign-in with the OpenID Connect provider failed; another attempt may succeed."""

    code = "dashboard.sign_in"


class UnknownKeyError(SignInError):
    """The ID token is signed with a key that the provider does not publish."""


class NoRightError(CcmError):
    """The provider has authenticated the user, but none of the user's groups has a right."""

    code = "dashboard.no_right"


def verified_claims(
    token: str, keys: Sequence[Mapping[str, Any]], settings: OidcSettings, nonce: str, now: float
) -> dict[str, Any]:
    """
    Return the claims of an ID token after verifying it.

    Args:
        token: The token from the provider.
        keys: The keys that the provider publishes (JWK).
        settings: The expected issuer and audience.
        nonce: The nonce of the request for this sign-in.
        now: Seconds since 1970.

    Raises:
        UnknownKeyError: The token is signed with a key that is not in `keys`.
        SignInError: The token is not from the provider, not for this dashboard, not for this sign-in, or has expired.
    """
    claims = _signed_claims(token, keys)
    check_claims(claims, settings, nonce, now)
    return claims


def check_claims(claims: Mapping[str, Any], settings: OidcSettings, nonce: str, now: float) -> None:
    """
    Check claims whose signature is valid, as `verified_claims` does.

    Raises:
        SignInError: The claims are not from the provider, not for this dashboard, not for this sign-in, or have expired.
    """
    if claims.get("iss") != settings.issuer:
        raise SignInError("the id token is from another issuer")
    audience = claims.get("aud")
    others = audience if isinstance(audience, list) else [audience]
    if settings.client_id not in others or (
        (len(others) > 1 or "azp" in claims) and claims.get("azp") != settings.client_id
    ):
        raise SignInError("the id token is for another client than this dashboard")
    if _time(claims, "exp") <= now - SKEW_S:
        raise SignInError("the id token has expired; are the clocks of the provider and this host right?")
    if max(_time(claims, "iat"), _time(claims, "nbf", default=0)) > now + SKEW_S:
        raise SignInError(
            "the id token is from the future; are the clocks of the provider and this host right?"
        )
    said = claims.get("nonce")
    if not isinstance(said, str) or not hmac.compare_digest(said.encode(errors="replace"), nonce.encode()):
        raise SignInError("the id token belongs to another sign-in")
    subject_of(claims)


def _signed_claims(token: str, keys: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key
    from joserfc.jws import JWSRegistry, deserialize_compact, extract_compact

    if len(token) > TOKEN_BYTES or not token.isascii():
        raise SignInError("the id token is too long, or not a token")
    # unknown headers must be ignored (RFC 7515, section 4); joserfc checks those in `crit`
    registry = JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)
    try:
        header = extract_compact(token.encode(), registry=registry).headers()
        key = import_key(dict(_key_for(header, keys)))
        payload = deserialize_compact(token, key, registry=registry, algorithms=list(ALGORITHMS)).payload
        claims = decode_foreign(payload or b"", dict[str, Any])
    except (JoseError, ValueError, TypeError, msgspec.MsgspecError) as err:
        raise SignInError("the id token is not signed by the provider, or not a token") from err
    return claims


def _key_for(header: Mapping[str, Any], keys: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    algorithm, wanted = header.get("alg"), header.get("kid")
    kind = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
    if kind is None:
        raise SignInError(
            "the id token has no signature with a public key; set RS256 or ES256 for this client at the provider"
        )
    fitting = [key for key in keys if key.get("kty") == kind and _may_sign(key, algorithm)]
    if wanted is None and len(fitting) > 1:
        raise SignInError("the id token does not name the key that signed it")
    found = next((key for key in fitting if wanted in (None, key.get("kid"))), None)
    if found is None:
        raise UnknownKeyError("the id token is signed with a key that the provider does not publish")
    return found


def _may_sign(key: Mapping[str, Any], algorithm: object) -> bool:
    if key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm:
        return False
    return key.get("kty") != "RSA" or RSA_BITS[0] <= _bits(key.get("n")) <= RSA_BITS[1]


def _bits(number: object) -> int:
    """Return the size, in bits, of a number in base64url, or 0 if it is not a number or is far too long."""
    if not isinstance(number, str) or len(number) > RSA_BITS[1]:
        return 0
    try:
        return int.from_bytes(base64.urlsafe_b64decode(f"{number}==")).bit_length()
    except ValueError:
        return 0


def _time(claims: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SignInError(f"the id token has no valid `{name}`")
    return value


def subject_of(claims: Mapping[str, Any]) -> str:
    """
    Return the ID of a user. The provider never assigns it to another user.

    Raises:
        SignInError: The claims have no ID.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not (subject.isascii() and subject.isprintable()):
        raise SignInError("the id token has no valid `sub`")
    if not 0 < len(subject) <= SUBJECT_CHARACTERS:
        raise SignInError("the id token has no valid `sub`")
    return subject


def user_of(claims: Mapping[str, Any], settings: OidcSettings) -> DashboardUser:
    """
    Return the user that the claims describe.

    Raises:
        NoRightError: None of the user's groups has a right.
    """
    subject = subject_of(claims)
    chosen = [settings.name_claim] if settings.name_claim else ["preferred_username", "email"]
    said = next(
        (text for one in chosen if isinstance(text := claims.get(one), str) and text.strip()), subject
    )
    name = _NOT_IN_A_NAME.sub("_", said[:NAME_CHARACTERS]).strip() or "user"
    groups = values_of(claims, settings.rights_claim)
    right = next(
        (right for right in (Right.ACT, Right.READ) if groups & {*settings.rights.get(right, ())}), None
    )
    if right is None:
        raise NoRightError(
            f"{settings.host} recognizes you as {name}, but none of your `{settings.rights_claim}` grants access here; "
            "ask the operator of this dashboard"
        )
    return DashboardUser(name=name, right=right, identity=f"{settings.issuer}#{quote(subject, safe='@:|+')}")


def values_of(claims: Mapping[str, Any], name: str) -> set[str]:
    """
    Return the texts of a claim. An email address that the provider has not verified is ignored, because the user may have chosen
    it.
    """
    if name == "email" and claims.get("email_verified") is not True:
        return set()
    value: object = claims.get(name)
    if name not in claims:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    values = value if isinstance(value, list) else [value]
    return {one for one in values if isinstance(one, str)}

"""
Requests to an OpenID Connect provider, for its discovery document, its keys, and the claims for a code.

Responses are limited in size and time, and redirects are not followed. Only the settings and the discovery document determine
where the code and the client secret are sent. Errors do not contain the content of requests or responses.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import CcmError, InputError
from ccm_agent.model.formats.safe_urls import is_safe_url
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_ctl.dashboard.id_token import SignInError, UnknownKeyError, values_of, verified_claims
from ccm_ctl.fleet.http_problems import describe_http_problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    import aiohttp

    from ccm_agent.model.secret import Secret
    from ccm_ctl.dashboard.oidc_settings import OidcSettings

T = TypeVar("T")

ANSWER_S = 10.0
"""The time limit, in seconds, for each response of the provider. The browser waits for it."""

ANSWER_BYTES = 256 << 10
KEYS_LIMIT = 100
FRESH_S = 3600.0
"""Seconds after which the discovery document and keys are read again, so that withdrawn keys are no longer accepted."""

AGAIN_S = 10.0
"""
The minimum interval, in seconds, between two readings after a failure or for an unknown key. It prevents users from causing a
flood of requests to the provider.
"""

WELL_KNOWN = "/.well-known/openid-configuration"


class OidcProviderError(CcmError):
    """The OpenID Connect provider cannot be used: it is down or slow, or its response is not valid."""

    code = "dashboard.provider"


class ProviderMetadata(Struct, frozen=True, kw_only=True):
    """
    The part of the discovery document that the dashboard uses. The names of the fields are those of OpenID Connect Discovery 1.0.
    """

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class _KeySet(Struct, frozen=True):
    keys: list[dict[str, Any]]


class _TokenReply(Struct, frozen=True):
    id_token: str
    access_token: str = ""


class _Problem(Struct, frozen=True):
    error: str = ""


class OidcProvider:
    """
    The OpenID Connect provider in the settings.

    Args:
        settings: The provider's address, and the dashboard's identity there.
        secret: The client secret. Empty: a public client, which has no secret.
        now: Returns seconds since 1970.
    """

    def __init__(self, settings: OidcSettings, secret: Secret, now: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._secret = secret
        self._now = now
        self._http: aiohttp.ClientSession | None = None
        self._metadata: ProviderMetadata | None = None
        self._read_at = self._failed_at = self._keys_at = float("-inf")
        self._failure = ""
        self._keys: list[dict[str, Any]] = []
        self._keys_failed_at = float("-inf")
        self._keys_failure = ""
        self._one_reads = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """
        Keep connections to the provider open within the block.

        Raises:
            InputError: The file with CA certificates cannot be read.
        """
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

        async with ClientSession(
            connector=TCPConnector(ssl=await asyncio.to_thread(self._tls), limit=20),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=ANSWER_S),
            auto_decompress=False,
            trust_env=True,
        ) as self._http:
            yield

    def _tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.settings.ca_file or None)
        except (OSError, ssl.SSLError) as err:
            raise InputError(f"{self.settings.ca_file}: not a PEM file of certificates") from err

    async def metadata(self) -> ProviderMetadata:
        """
        Return the discovery document.

        Raises:
            OidcProviderError: The document cannot be read, or belongs to another issuer.
        """
        async with self._one_reads:
            if self._metadata is not None and self._now() - self._read_at < FRESH_S:
                return self._metadata
            if self._now() - self._failed_at < AGAIN_S:
                raise OidcProviderError(self._failure)
            try:
                self._metadata = await self._discover()
            except OidcProviderError as err:
                self._failed_at, self._failure = self._now(), err.message
                raise
            self._read_at = self._now()
            return self._metadata

    async def _discover(self) -> ProviderMetadata:
        url = self.settings.issuer.rstrip("/") + WELL_KNOWN
        found = await self._read("GET", url, ProviderMetadata, "discovery document")
        if found.issuer != self.settings.issuer:
            raise self._error(
                "its discovery document is of another issuer; `issuer` must be exactly the same"
            )
        endpoints = [found.authorization_endpoint, found.token_endpoint, found.jwks_uri]
        if found.userinfo_endpoint:
            endpoints.append(found.userinfo_endpoint)
        if not all(is_safe_url(one, query=True) for one in endpoints):
            raise self._error("its discovery document has an address that is not https://")
        return found

    async def authorization_url(
        self, redirect: str, state: str, nonce: str, challenge: str, *, ask_again: bool = False
    ) -> str:
        """
        Return the address at which the browser signs in.

        Args:
            redirect: The address to which the provider redirects the browser afterwards.
            state: A text that the provider returns with the code.
            nonce: A text that the provider includes in the ID token.
            challenge: The SHA-256 of the verifier, in base64url (RFC 7636).
            ask_again: Whether the provider must ask the user to sign in, even if the browser is already signed in at the
                provider.

        Raises:
            OidcProviderError: The provider cannot be used.
        """
        endpoint = (await self.metadata()).authorization_endpoint
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect,
            "scope": " ".join(self.settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if ask_again:
            query["prompt"] = "login"
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def claims_for(self, code: str, redirect: str, verifier: str, nonce: str) -> dict[str, Any]:
        """
        Return the provider's claims about the user who signed in.

        Args:
            code: The code from the browser.
            redirect, verifier, nonce: The values in the request with which the browser was redirected.

        Raises:
            SignInError: The code or the ID token is not valid.
            OidcProviderError: The provider cannot be used.
        """
        reply = await self._redeem(code, redirect, verifier)
        claims = await self._verify(reply.id_token, nonce)
        endpoint = (await self.metadata()).userinfo_endpoint
        if values_of(claims, self.settings.rights_claim) or not (endpoint and reply.access_token):
            return claims
        # some providers include only the subject in the ID token
        headers = {"Authorization": f"Bearer {reply.access_token}"}
        more = await self._read("GET", endpoint, dict[str, Any], "answer about the user", headers=headers)
        if more.get("sub") != claims["sub"]:
            raise SignInError("the provider answered about another user")
        return {**more, **claims}

    async def _redeem(self, code: str, redirect: str, verifier: str) -> _TokenReply:
        metadata, settings = await self.metadata(), self.settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": verifier,
        }
        headers = {}
        methods = metadata.token_endpoint_auth_methods_supported
        if not self._secret:
            form["client_id"] = settings.client_id
        elif "client_secret_post" in methods and "client_secret_basic" not in methods:
            form |= {"client_id": settings.client_id, "client_secret": self._secret.reveal()}
        else:
            # RFC 6749, section 2.3.1: both parts are form-encoded
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(self._secret.reveal())}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return await self._read(
            "POST", metadata.token_endpoint, _TokenReply, "answer to the code", form=form, headers=headers
        )

    async def _verify(self, token: str, nonce: str) -> dict[str, Any]:
        """Verify the ID token and return its claims. Its key may be newer than the cached keys."""
        keys = await self._known_keys(self._now() - FRESH_S)
        try:
            return await asyncio.to_thread(verified_claims, token, keys, self.settings, nonce, self._now())
        except UnknownKeyError:
            keys = await self._known_keys(self._now() - AGAIN_S)
            return await asyncio.to_thread(verified_claims, token, keys, self.settings, nonce, self._now())

    async def _known_keys(self, since: float) -> list[dict[str, Any]]:
        """Return the provider's keys. They are read again if the last reading was before `since`."""
        url = (await self.metadata()).jwks_uri
        async with self._one_reads:
            if self._keys_at > since:
                return self._keys
            if self._now() - self._keys_failed_at < AGAIN_S:
                raise OidcProviderError(self._keys_failure)
            try:
                found = await self._read("GET", url, _KeySet, "key set")
            except OidcProviderError as err:
                self._keys_failed_at, self._keys_failure = self._now(), err.message
                raise
            self._keys, self._keys_at = found.keys[:KEYS_LIMIT], self._now()
            return self._keys

    async def _read(
        self,
        method: str,
        url: str,
        kind: type[T],
        what: str,
        *,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """Return a response of the provider."""
        status, body = await self._ask(method, url, form, {"Accept": "application/json", **(headers or {})})
        if form is not None and status in (400, 401):
            raise self._refused(body)
        if 300 <= status < 400:
            raise self._error(f"its {what} redirects to another address; `issuer` must be the final one")
        if status != 200:
            raise self._error(f"the request for its {what} failed with HTTP status {status}")
        try:
            return decode_foreign(body, kind)
        except msgspec.MsgspecError as err:
            raise self._error(f"its {what} is not valid") from err

    async def _ask(
        self, method: str, url: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        from aiohttp import ClientError

        assert self._http is not None
        headers = {"Accept-Encoding": "identity", "User-Agent": "ccmctl", **headers}
        body = bytearray()
        try:
            async with self._http.request(
                method, url, data=form, headers=headers, allow_redirects=False
            ) as answer:
                async for chunk in answer.content.iter_chunked(16 << 10):
                    body += chunk
                    if len(body) > ANSWER_BYTES:
                        raise self._error(f"an answer has more than {ANSWER_BYTES >> 10} KiB")
                return answer.status, bytes(body)
        except TimeoutError:
            raise self._error(f"no answer within {ANSWER_S:g} s") from None
        except (ClientError, ValueError, OSError) as err:
            # the error's own text may contain the code
            raise self._error(describe_http_problem(err) or "the connection broke off") from None

    def _refused(self, body: bytes) -> CcmError:
        """Return the reason why the provider did not issue a token."""
        try:
            said = decode_foreign(body, _Problem).error
        except msgspec.MsgspecError:
            said = ""
        if said == "invalid_grant":
            return SignInError(
                "the provider did not accept the code: it was used, has expired or belongs to another client"
            )
        if said in ("invalid_client", "unauthorized_client"):
            return self._error("it does not accept client_id or the client secret of this dashboard")
        return self._error("it refused to exchange the code for a token")

    def _error(self, what: str) -> OidcProviderError:
        return OidcProviderError(f"{self.settings.host}: {what}")

"""An OpenID Connect provider of the tests' own, which says what a test wants: also what no honest provider says."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiohttp import web
from joserfc import jwk, jws

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

GROUPS = ["staff"]


class HandMadeProvider:
    """
    Gives a code for each request, and an id token for each code once.

    Attributes:
        issuer: Its URL.
        claims: What the next id token contains besides the usual claims; None removes a claim.
        about: What it says about the user besides the id token.
        metadata: What its discovery document contains besides the usual.
        answers: What it does in place of the usual, by path.
        asked: The paths that were asked for.
        forms: What was sent to exchange codes, with the header of authorization.
    """

    def __init__(self) -> None:
        self.issuer = ""
        self.claims: dict[str, Any] = {"groups": GROUPS}
        self.about: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.now = 1000.0
        self.rotate("one")
        self._codes: dict[str, dict[str, str]] = {}

    def rotate(self, name: str) -> None:
        """Sign with a new key, and publish only that."""
        self.key = jwk.generate_key("EC", "P-256", {"kid": name})  # type: ignore[arg-type]

    def code_for(self, address: str) -> str:
        """What a browser is sent back with that signs in at the address to which the dashboard sent it."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        code = f"code-{len(self._codes)}"
        self._codes[code] = query
        return code

    @contextlib.asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[HandMadeProvider]:
        """Serve on this host within the block."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
            self.issuer = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if special := self.answers.get(request.path):
            return await special(request)
        if request.path == "/.well-known/openid-configuration":
            return web.json_response(self.document())
        if request.path == "/keys":
            return web.json_response({"keys": [self.key.as_dict(private=False)]})
        if request.path == "/token":
            return await self._token(request)
        if request.path == "/userinfo":
            return web.json_response(self.about)
        return web.Response(status=404)

    def document(self) -> dict[str, Any]:
        """Its discovery document."""
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append({**form, "authorization": request.headers.get("Authorization", "")})
        asked = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != form["redirect_uri"]
        ):
            return web.json_response({"error": "invalid_grant", "error_description": "<b>no</b>"}, status=400)
        return web.json_response(
            {"id_token": self.id_token(asked["nonce"]), "access_token": "a", "token_type": "Bearer"}
        )

    def id_token(self, nonce: str) -> str:
        """A token for the dashboard."""
        claims = {
            "iss": self.issuer,
            "aud": "board",
            "sub": "7",
            "exp": self.now + 300,
            "iat": self.now,
            "nonce": nonce,
            "preferred_username": "ann",
            **self.claims,
        }
        payload = json.dumps({name: value for name, value in claims.items() if value is not None})
        return jws.serialize_compact({"alg": "ES256", "kid": self.key.kid}, payload, self.key, ["ES256"])

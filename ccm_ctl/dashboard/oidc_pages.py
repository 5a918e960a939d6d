"""
Sign-in with an OpenID Connect provider: the authorization code flow with PKCE.

`/sign-in` sets a cookie for the attempt and redirects the browser to the provider. State, nonce and verifier are derived from the
cookie with the dashboard's key. The server therefore does not store attempts, and a code is useless in another browser.

Source: OpenID Connect Core 1.0, section 3.1; RFC 7636 (PKCE); RFC 9207 (issuer in the response); RFC 9700 (security).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import logging
import re
import secrets
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import msgspec
from aiohttp import web
from msgspec import Struct

from ccm_agent.model.errors import CcmError, UsageError
from ccm_agent.model.formats.safe_urls import is_loopback
from ccm_ctl.dashboard.id_token import NoRightError, SignInError, user_of
from ccm_ctl.dashboard.middleware import ACCESS, PROVIDER_HOST, cookie_name
from ccm_ctl.dashboard.oidc_provider import OidcProvider, OidcProviderError
from ccm_ctl.dashboard.session_pages import set_cookie, set_session

log = logging.getLogger(__name__)

ATTEMPT_S = 10 * 60
"""The time limit, in seconds, for a sign-in at the provider."""

NEXT_CHARACTERS = 1000
_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")
"""A path of this dashboard, without another host, backslashes or control characters."""

_WORD = re.compile(r"[a-z_]{1,40}")

STATUS = {NoRightError: 403, OidcProviderError: 502}


class _Attempt(Struct, frozen=True, kw_only=True):
    """The content of an attempt's cookie: a random text, its end (seconds since 1970), and the path that the user requested."""

    chance: str
    until: int
    next: str


class OidcPages:
    """The route `/sign-in`, and the route `/sign-in/callback`, to which the provider redirects the browser."""

    def __init__(self, provider: OidcProvider) -> None:
        self._provider = provider

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        application.router.add_get("/sign-in", self._begin)
        application.router.add_get("/sign-in/callback", self._finish)
        application[PROVIDER_HOST] = self._provider.settings.host
        application.cleanup_ctx.append(self._connected)

    async def _connected(self, _: web.Application) -> AsyncIterator[None]:
        async with self._provider.connected():
            yield

    async def _begin(self, request: web.Request) -> web.Response:
        """Redirect the browser to the provider."""
        access, wanted = request.app[ACCESS], safe_path(request.query.get("next", ""))
        attempt = _Attempt(chance=secrets.token_urlsafe(32), until=int(access.now()) + ATTEMPT_S, next=wanted)
        cookie = access.seal("attempt", msgspec.json.encode(attempt))
        verifier = access.derive("verifier", cookie).encode()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier).digest()).rstrip(b"=").decode()
        state, nonce = access.derive("state", cookie), access.derive("nonce", cookie)
        try:
            url = await self._provider.authorization_url(
                redirect_of(request), state, nonce, challenge, ask_again="again" in request.query
            )
        except CcmError as err:
            return problem_page(err, wanted)
        response = redirect_to(url)
        # Lax, because browsers do not send a Strict cookie when the provider's page redirects to this server
        set_cookie(request, response, attempt_cookie(request), cookie, max_age_s=ATTEMPT_S, same_site="Lax")
        return response

    async def _finish(self, request: web.Request) -> web.Response:
        """Start the session of the user whom the provider authenticated."""
        access, attempt = request.app[ACCESS], attempt_of(request)
        try:
            cookie = request.cookies.get(attempt_cookie(request), "")
            code = await self._code_of(request, attempt, access.derive("state", cookie))
            verifier, nonce = access.derive("verifier", cookie), access.derive("nonce", cookie)
            claims = await self._provider.claims_for(code, redirect_of(request), verifier, nonce)
            user = user_of(claims, self._provider.settings)
        except CcmError as err:
            log.warning("a sign-in failed", extra={"code": err.code, "reason": err.message})
            response = problem_page(err, attempt.next if attempt else "/")
        else:
            log.info("a user signed in", extra={"user": user.on_record, "right": str(user.right)})
            assert attempt is not None
            response = redirect_to(attempt.next)
            set_session(request, response, access.sign_in_as(user, self._provider.settings.session_s))
        if attempt is not None:  # the response to another attempt must not end this browser's own attempt
            response.del_cookie(
                attempt_cookie(request), path="/", httponly=True, samesite="Lax", secure=request.secure
            )
        return response

    async def _code_of(self, request: web.Request, attempt: _Attempt | None, state: str) -> str:
        """Return the code of the provider's response to this browser's attempt."""
        query = request.query
        said = query.get("state", "").encode(errors="surrogateescape")
        if attempt is None or not hmac.compare_digest(said, state.encode()):
            raise SignInError("this sign-in was not begun in this browser within the last 10 minutes")
        settings, issuer = self._provider.settings, query.get("iss")
        if (
            issuer is None
            and (await self._provider.metadata()).authorization_response_iss_parameter_supported
        ):
            issuer = ""
        if issuer not in (None, settings.issuer):
            raise SignInError("the response is from another provider")
        if error := query.get("error"):
            word = error if _WORD.fullmatch(error) else "an error"
            raise SignInError(f"{settings.host} did not sign you in: {word}")
        if not (code := query.get("code", "")):
            raise SignInError("the answer of the provider has no code")
        return code


def attempt_cookie(request: web.Request) -> str:
    """Return the name of the cookie for an attempt to sign in."""
    return f"{cookie_name(request)}-sign-in"


def attempt_of(request: web.Request) -> _Attempt | None:
    """Return the browser's current attempt to sign in, or None if there is none or it has expired."""
    access = request.app[ACCESS]
    content = access.unseal("attempt", request.cookies.get(attempt_cookie(request), ""))
    try:
        attempt = msgspec.json.decode(content or b"", type=_Attempt)
    except msgspec.MsgspecError:
        return None
    return attempt if attempt.until >= access.now() else None


def redirect_of(request: web.Request) -> str:
    """
    Return the address to which the provider redirects the browser. It must be registered at the provider. `guard_host` has
    checked its host name.

    Raises:
        UsageError: The browser uses neither TLS nor a loopback address.
    """
    if not request.secure and not is_loopback(request.url.host or ""):
        raise UsageError("signing in needs TLS: start the dashboard with --tls-cert and --tls-key")
    return f"{request.scheme}://{request.host}/sign-in/callback"


def safe_path(wanted: str) -> str:
    """
    Return the path if it belongs to this dashboard, or else the path of the first page. This prevents redirects to other sites.
    """
    is_ours = len(wanted) <= NEXT_CHARACTERS and _PATH.fullmatch(wanted) is not None
    return wanted if is_ours and not wanted.startswith(("/api/", "/sign-in")) else "/"


def redirect_to(address: str) -> web.Response:
    """Return a response that redirects the browser."""
    return web.Response(status=303, headers={"Location": address})


def problem_page(err: CcmError, wanted: str) -> web.Response:
    """Return a page with the reason why a sign-in failed. The page does not use scripts."""
    # without an explicit question, the provider would sign in the same user without a right again
    again = "/sign-in?" + urlencode(
        {"next": wanted} | ({"again": "1"} if isinstance(err, NoRightError) else {})
    )
    status = next((status for kind, status in STATUS.items() if isinstance(err, kind)), 400)
    text = f"""<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>Sign in · CCM fleet</title>
    <link rel="icon" href="/static/icon.svg">
    <link rel="stylesheet" href="/static/style.css">
  </head>
  <body>
    <main class="sign-in">
      <h1>You are not signed in</h1>
      <p class="problem" role="alert">{html.escape(err.message)}</p>
      <p><a href="{html.escape(again)}">Sign in again</a></p>
    </main>
  </body>
</html>
"""
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8")

"""The API for signing in and out, and for the session's state."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web
from msgspec import Struct

from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.version import VERSION
from ccm_ctl.dashboard.access import SESSION_S
from ccm_ctl.dashboard.middleware import (
    ACCESS,
    HAS_FLEET,
    PROVIDER_HOST,
    answer,
    cookie_name,
    is_own_origin,
    refusal,
)


class SignInRequest(Struct, frozen=True):
    """The body of a sign-in."""

    token: str


def add_session(application: web.Application, on_sign_in: Callable[[], None]) -> None:
    """Serve `/api/session`."""

    async def show(request: web.Request) -> web.Response:
        return _session(request, request.cookies.get(cookie_name(request), ""))

    async def begin(request: web.Request) -> web.Response:
        if not is_own_origin(request):
            return refusal(403, "sign in on a page of this dashboard")
        try:
            said = decode_foreign(await request.read(), SignInRequest)
        except msgspec.MsgspecError:
            return refusal(400, "the body is not a token")
        cookie = request.app[ACCESS].sign_in(said.token)
        if cookie is None:
            return refusal(
                401,
                "the token is unknown, used or expired; `ccmctl dashboard` prints a new address",
                "dashboard.token",
            )
        on_sign_in()
        response = _session(request, cookie)
        set_session(request, response, cookie)
        return response

    async def end(request: web.Request) -> web.Response:
        if not is_own_origin(request):
            return refusal(403, "sign out on a page of this dashboard")
        request.app[ACCESS].sign_out(request.cookies.get(cookie_name(request), ""))
        response = answer({})
        response.del_cookie(
            cookie_name(request), path="/", httponly=True, samesite="Strict", secure=request.secure
        )
        return response

    application.router.add_get("/api/session", show)
    application.router.add_post("/api/session", begin)
    application.router.add_delete("/api/session", end)


def set_session(request: web.Request, response: web.Response, cookie: str) -> None:
    """
    Set the cookie of the browser's session.

    The cookie is Strict. This also works after a redirect from a provider, because pages are the same for all users and request
    their data from this site.
    """
    set_cookie(request, response, cookie_name(request), cookie, max_age_s=SESSION_S, same_site="Strict")


def set_cookie(
    request: web.Request, response: web.Response, name: str, content: str, *, max_age_s: int, same_site: str
) -> None:
    """Set a cookie that scripts cannot read. The cookie requires TLS if the request used TLS."""
    response.set_cookie(
        name,
        content,
        max_age=max_age_s,
        httponly=True,
        samesite=same_site,
        secure=request.secure,
        path="/",
    )


def _session(request: web.Request, cookie: str) -> web.Response:
    access = request.app[ACCESS]
    user, provider = access.user_of(cookie), request.app.get(PROVIDER_HOST, "")
    if user is None:
        said = {"error": "sign in first", "code": "dashboard.signed_out"}
        return answer({**said, "provider": provider}, 401)
    return answer(
        {
            "name": user.name,
            "identity": user.identity,
            "provider": provider,
            "right": user.right,
            "action": access.forgery_token(cookie),
            "version": VERSION,
            "fleet": request.app[HAS_FLEET],
        }
    )

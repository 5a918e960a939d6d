"""Checks of every request (host name, user, origin), and the headers of every response."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from ccm_agent.model.errors import (
    BusDeniedError,
    BusUnavailableError,
    CcmError,
    InputError,
    NoTargetError,
    NotFoundError,
    RevisionError,
    RunError,
    UsageError,
)
from ccm_ctl.dashboard.access import Access, DashboardUser, Right
from ccm_ctl.dashboard.work_limiter import TooBusyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)

ACCESS: web.AppKey[Access] = web.AppKey("access", Access)

HAS_FLEET: web.AppKey[bool] = web.AppKey("has_fleet", bool)
"""Whether the server is connected to a fleet. Otherwise, only the studio is served."""

PROVIDER_HOST: web.AppKey[str] = web.AppKey("provider_host", str)
"""The host of the OpenID Connect provider for signing in. It is not set if there is no provider."""

READING: web.AppKey[set[str]] = web.AppKey("reading", set)
"""
Paths of requests with a body that do not change the fleet. They must be sent by a page of this dashboard, but do not require the
right to act.
"""

FORGERY_HEADER = "X-CCM-Action"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
    "Cache-Control": "no-store",
}

STATUS_BY_ERROR: tuple[tuple[type[CcmError], int], ...] = (
    (NoTargetError, 404),
    (NotFoundError, 404),
    (RevisionError, 409),
    (RunError, 409),
    (BusDeniedError, 403),
    (BusUnavailableError, 503),
    (TooBusyError, 503),
    (UsageError, 400),
    (InputError, 400),
)


def cookie_name(request: web.Request) -> str:
    """
    Return the cookie's name. It includes the port, because browsers share cookies between ports. With TLS, the name binds the
    cookie to the host.
    """
    port = request.url.port or 0
    return f"__Host-ccm-{port}" if request.secure else f"ccm-{port}"


def sender_of(request: web.Request) -> DashboardUser:
    """Return the user who sent a request that `require_user` accepted."""
    user = request.app[ACCESS].user_of(request.cookies.get(cookie_name(request), ""))
    if user is None:
        raise web.HTTPUnauthorized
    return user


def answer(value: object, status: int = 200) -> web.Response:
    """Return a JSON response."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def refusal(status: int, message: str, code: str = "dashboard.refused") -> web.Response:
    """Return an error as a JSON response."""
    return answer({"error": message, "code": code}, status)


def set_headers(response: web.StreamResponse) -> None:
    """Set the headers that all responses have."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


def guard_host(hosts: Collection[str]) -> Any:
    """
    Return middleware that accepts only known host names. Other sites could point their own name to this address (DNS rebinding).

    Args:
        hosts: The accepted values of the Host header, in lowercase. The server adds them when it starts to listen.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.host.lower() not in hosts:
            response: web.StreamResponse = refusal(
                421, "this dashboard has another address; see the output of `ccmctl dashboard`"
            )
        else:
            response = await _handled(request, handler)
        if not response.prepared:
            set_headers(response)
        return response

    return middleware


async def _handled(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as err:
        return refusal(err.status, err.reason)
    except CcmError as err:
        status = next((status for kind, status in STATUS_BY_ERROR if isinstance(err, kind)), 500)
        return refusal(status, err.message, err.code)
    except ConnectionError:
        raise
    except Exception:  # one failed request must not end the server
        log.exception("a request failed", extra={"path": request.path})
        return refusal(500, "the dashboard failed; see its log with --debug", "dashboard.defect")


@web.middleware
async def require_user(request: web.Request, handler: Handler) -> web.StreamResponse:
    """
    Allow access to the API only for signed-in browsers. Changes also require the right to act, and a page of this dashboard as
    sender.
    """
    if not request.path.startswith("/api/") or request.path == "/api/session":
        return await handler(request)
    access = request.app[ACCESS]
    cookie = request.cookies.get(cookie_name(request), "")
    user = access.user_of(cookie)
    if user is None:
        return refusal(401, "sign in first", "dashboard.signed_out")
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return refusal(403, "the request comes from another site")
    if request.method not in ("GET", "HEAD"):
        if problem := _forged(request, access, cookie):
            return refusal(403, problem)
        if user.right is not Right.ACT and request.path not in request.app[READING]:
            return refusal(
                403, "this user can only view; actions require --allow-actions and the right `act`"
            )
    return await handler(request)


def _forged(request: web.Request, access: Access, cookie: str) -> str:
    if not is_own_origin(request):
        return "the action comes from a page of another origin"
    if not access.is_genuine(cookie, request.headers.get(FORGERY_HEADER, "")):
        return "the action does not come from a page of this session; reload the page"
    return ""


def is_own_origin(request: web.Request) -> bool:
    """Whether a page of this dashboard sent the request. Browsers send the origin with every method except GET."""
    return request.headers.get("Origin", "") == f"{request.scheme}://{request.host}"

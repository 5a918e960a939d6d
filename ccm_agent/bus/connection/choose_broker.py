"""Choose the broker of a command line: from its options, then the environment, then a context of the `nats` program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ccm_agent.bus.access.credentials import name_in_credentials
from ccm_agent.bus.connection.settings import (
    DEFAULT_SERVER,
    BusSettings,
    accepts_insecure,
    replaced,
    settings_for,
    settings_from_context,
)
from ccm_agent.model.errors import NotFoundError
from ccm_agent.model.secret import mask_url

CONTEXT_VARIABLES = ("CCM_CONTEXT", "NATS_CONTEXT")
SERVER_VARIABLES = ("CCM_SERVER", "NATS_URL")
CREDS_VARIABLES = ("CCM_CREDS", "NATS_CREDS")


def choose_broker(
    environ: Mapping[str, str], *, server: str = "", context: str = "", usual_context: str = "", **given: Any
) -> BusSettings:
    """
    Return the settings of the broker from options, environment or context; by default, of the broker on this host.

    Blocking: reads one or two small files.

    Args:
        environ: The environment.
        server: URLs from the command line.
        context: The context from the command line.
        usual_context: A context that takes precedence over the selected one, if it exists.
        given: Fields of BusSettings from the command line. They take precedence over the environment's and the context's.

    Raises:
        NotFoundError: A named context does not exist.
        DocumentError: The context cannot be used.
        UsageError: A URL is not valid.
    """
    if not given.get("creds") and (creds := first_set(environ, CREDS_VARIABLES)):
        given["creds"] = creds
    if not given.get("ca") and (ca := environ.get("CCM_CA", "")):
        given["ca"] = ca
    server = server or ("" if context else first_set(environ, SERVER_VARIABLES))
    context = context or ("" if server else first_set(environ, CONTEXT_VARIABLES))
    if server:
        settings = settings_for(server, **given)
    elif context:
        settings = settings_from_context(context, **given)
    else:
        settings = _from_existing((usual_context, "") if usual_context else ("",), given)
    return replaced(settings, insecure=True) if accepts_insecure(environ) else settings


def _from_existing(contexts: Sequence[str], given: dict[str, Any]) -> BusSettings:
    """Return the settings of the first of these contexts that exists; otherwise, those of the broker on this host."""
    for context in contexts:
        try:
            return settings_from_context(context, **given)
        except NotFoundError:
            continue
    return settings_for(DEFAULT_SERVER, **given)


def broker_name(environ: Mapping[str, str], context: str, usual_context: str) -> str:
    """Return a stable name for the broker that `choose_broker` would choose, without reading files."""
    if not context and (server := first_set(environ, SERVER_VARIABLES)):
        return mask_url(server)
    return f"context {context or first_set(environ, CONTEXT_VARIABLES) or usual_context}"


def named_by_credentials(settings: BusSettings) -> BusSettings:
    """
    Return the settings with the identity in the credentials, because the broker delivers replies only to that name. Blocking.
    """
    try:
        text = Path(settings.creds).read_text(encoding="utf-8") if settings.creds else ""
    except (OSError, UnicodeDecodeError):  # the connection reports the error
        text = ""
    name = name_in_credentials(text)
    return replaced(settings, identity=name) if name else settings


def first_set(environ: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the value of the first variable that is set and not empty; "" if there is none."""
    return next((environ[name] for name in names if environ.get(name)), "")

"""Errors for operations that the broker refused; they name the role that allows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.bus.connection.broker_errors import place_of
from ccm_agent.bus.subjects import format_scope, parse_request
from ccm_agent.model.errors import BusDeniedError, ProtocolError

if TYPE_CHECKING:
    from ccm_agent.bus.connection.settings import BusSettings

PUBLISH = "publish there"

_READS = (".INFO", ".DIRECT.GET.", ".MSG.GET.", ".CONSUMER.", ".NAMES", ".LIST")


def denied(settings: BusSettings, word: str, subject: str) -> BusDeniedError:
    """
    Return the error for an operation that the broker refused.

    Args:
        settings: The settings of the connection.
        word: The operation: PUBLISH, or "subscribe to it".
        subject: The subject.
    """
    needed = settings.operator_flag(subject) if settings.operator_flag and word == PUBLISH else ""
    hint = f"grant it with `ccmctl operator add {needed}`" if needed else "see its permissions on the broker"
    if needed and (scope := _scope_of(subject)):
        hint = f"it lacks the right `{needed} {scope}`; see `ccmctl operator add --help`"
    if word == PUBLISH and subject.startswith("$JS."):
        word = "read it" if any(part in subject for part in _READS) else "create or change it"
    return BusDeniedError(
        f"{place_of(subject)}: the broker does not allow {settings.identity} to {word}; {hint}"
    )


def _scope_of(subject: str) -> str:
    """Return the scope of a request in the form that operators use; "" for other subjects."""
    try:
        return format_scope(parse_request(subject)[1])
    except ProtocolError:
        return ""


def no_inbox(settings: BusSettings) -> BusDeniedError:
    """Return the error for credentials that cannot receive replies. Each request with them would time out."""
    advice = "use the credentials that were issued for this node"
    if settings.program == "ccmctl":
        advice = "use that operator's credentials, or set --operator (CCM_OPERATOR) to the name in these credentials"
    return BusDeniedError(
        f"{settings.address}: the broker does not deliver answers for `{settings.identity}` to these credentials; {advice}"
    )

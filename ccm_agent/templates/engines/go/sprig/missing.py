"""Sprig functions that are not supported, each with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ccm_agent.model.errors import TemplateError

_NO_CRYPTOGRAPHY = "it needs a library for cryptography; make the secret elsewhere and keep it in data"
_NO_NETWORK = "templates cannot use the network; take the address from facts or data"

_REASONS = {
    **dict.fromkeys(
        (
            "bcrypt",
            "htpasswd",
            "encryptAES",
            "decryptAES",
            "genPrivateKey",
            "buildCustomCert",
            "genCA",
            "genCAWithKey",
            "genSelfSignedCert",
            "genSelfSignedCertWithKey",
            "genSignedCert",
            "genSignedCertWithKey",
        ),
        _NO_CRYPTOGRAPHY,
    ),
    "getHostByName": _NO_NETWORK,
}


def _missing(name: str, reason: str) -> Callable[..., Any]:
    def refuse(*arguments: Any) -> NoReturn:
        raise TemplateError(f"{name!r} is not supported: {reason}")

    return refuse


FUNCTIONS: dict[str, Callable[..., Any]] = {name: _missing(name, reason) for name, reason in _REASONS.items()}

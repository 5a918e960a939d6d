"""Services as they register."""

from __future__ import annotations

from typing import Any

from ccm_agent.model.registration import RegistrationEntry


def an_entry(number: int = 1, **fields: Any) -> RegistrationEntry:
    """A web server of production, and what the fields say otherwise."""
    known: dict[str, Any] = {
        "cluster": "prod",
        "service": "web",
        "protocol": "http",
        "address": f"10.0.0.{number}",
        "port": 8080,
        "priority": 10,
    }
    return RegistrationEntry(**(known | fields))

"""The settings of an OpenID Connect provider: where it is, who the dashboard is there, and which of its users may do what."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ccm_agent.model.codec import decode_as
from ccm_agent.model.errors import DocumentError, InputError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.formats.safe_urls import is_safe_url
from ccm_agent.model.secret import Secret
from ccm_ctl.dashboard.access import SESSION_S, Right
from ccm_ctl.dashboard.private_files import read_private_text, read_trusted_text

ISSUER_CHARACTERS = 300
"""The longest issuer: it is part of each cookie, and browsers keep cookies of 4 KiB."""

SHORTEST_SESSION_S = 60


class OidcSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The file of `--oidc`.

    Attributes:
        issuer: URL of the provider, exactly as its discovery document has it.
        client_id: The name of the dashboard at the provider.
        client_secret_file: File with the secret of the client, with mode 0600; "": a public client, which has none.
        scopes: What the dashboard asks for.
        rights_claim: The claim with the groups of a user. `a.b` is also `b` within `a`.
        rights: Values of that claim, by the right that they give.
        name_claim: The claim with the name of a user; "": preferred_username, else email, else the subject.
        session: How long a session lasts, 12 hours at most.
        ca_file: Certificates that sign the provider's; "": those of the system.
    """

    issuer: str
    client_id: str
    client_secret_file: str = ""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    rights_claim: str = "groups"
    rights: dict[Right, list[str]]
    name_claim: str = ""
    session: str = "8h"
    ca_file: str = ""

    @property
    def session_s(self) -> float:
        """`session` in seconds."""
        return parse_duration(self.session)

    @property
    def host(self) -> str:
        """The host of the provider, for pages and errors."""
        return urlsplit(self.issuer).netloc

    @property
    def digest(self) -> str:
        """Changes with everything that decides who may do what, so that sessions of other settings end."""
        rights = {right: sorted(self.rights.get(right, ())) for right in Right}
        decisive = [self.issuer, self.client_id, self.rights_claim, rights]
        return hashlib.sha256(msgspec.json.encode(decisive)).hexdigest()[:16]


def read_settings(path: Path) -> tuple[OidcSettings, Secret]:
    """
    The settings in a file, and the secret of the client. Paths in the file are relative to its folder.

    Raises:
        InputError: A file cannot be read, others can write the settings or read the secret, or a value is not usable.
        DocumentError: The file is not YAML, or a key is unknown; with file and line.
    """
    settings = decode_as(read_trusted_text(path), OidcSettings, str(path))
    if problem := _problem(settings):
        raise InputError(f"{path}: {problem}")
    secret = ""
    if settings.client_secret_file:
        file = path.parent / settings.client_secret_file
        secret = read_private_text(file).strip()
        if not secret:
            raise InputError(f"{file}: is empty; it must contain the client secret")
    if settings.ca_file:
        settings = msgspec.structs.replace(settings, ca_file=str(path.parent / settings.ca_file))
    return settings, Secret(secret)


def _problem(settings: OidcSettings) -> str:
    """Why settings cannot be used; "": they can."""
    if len(settings.issuer) > ISSUER_CHARACTERS or not is_safe_url(settings.issuer):
        return "issuer: must be an https:// URL without user, query and fragment; http:// only on this host"
    if not settings.client_id.strip():
        return "client_id: must not be empty"
    if "openid" not in settings.scopes or any(not one or " " in one for one in settings.scopes):
        return "scopes: must be words, and `openid` must be one of them"
    if not any(settings.rights.values()):
        return f"rights: must give a right to at least one value of `{settings.rights_claim}`; see the documentation"
    try:
        session_s = settings.session_s
    except DocumentError as err:
        return f"session: {err}"
    if not SHORTEST_SESSION_S <= session_s <= SESSION_S:
        return "session: must be between 1m and 12h"
    return ""

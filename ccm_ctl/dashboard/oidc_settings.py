"""The settings of an OpenID Connect provider: its address, the dashboard's identity there, and the rights of its users."""

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
"""The maximum length of an issuer. It is part of each cookie, and browsers limit cookies to 4 KiB."""

SHORTEST_SESSION_S = 60


class OidcSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The file of `--oidc`.

    Attributes:
        issuer: The provider's URL, exactly as in its discovery document.
        client_id: The dashboard's client ID at the provider.
        client_secret_file: A file with the client secret, with mode 0600. "": a public client, which has no secret.
        scopes: The scopes that the dashboard requests.
        rights_claim: The claim with a user's groups. `a.b` also refers to `b` within `a`.
        rights: The values of this claim, by the right that they grant.
        name_claim: The claim with a user's name. "": the first available of preferred_username, email and the subject.
        session: The length of a session, which is at most 12 hours.
        ca_file: A file with CA certificates for the provider. "": those of the system.
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
        """The length of a session, in seconds."""
        return parse_duration(self.session)

    @property
    def host(self) -> str:
        """The provider's host, for pages and errors."""
        return urlsplit(self.issuer).netloc

    @property
    def digest(self) -> str:
        """A digest of all settings that affect rights. Existing sessions end when it changes."""
        rights = {right: sorted(self.rights.get(right, ())) for right in Right}
        decisive = [self.issuer, self.client_id, self.rights_claim, rights]
        return hashlib.sha256(msgspec.json.encode(decisive)).hexdigest()[:16]


def read_settings(path: Path) -> tuple[OidcSettings, Secret]:
    """
    Return the settings in a file, and the client secret. Paths in the file are relative to its folder.

    Raises:
        InputError: A file cannot be read, other users can write the settings or read the secret, or a value is not valid.
        DocumentError: The file is not YAML, or a key is unknown. The error contains the file and line.
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
    """Return why settings cannot be used, or "" if they can."""
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

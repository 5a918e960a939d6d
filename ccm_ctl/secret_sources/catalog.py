"""Open the source that an operator specified: `age:FILE#KEY`, `sops:FILE#KEY` or `vault:MOUNT/PATH#FIELD`."""

from __future__ import annotations

from collections.abc import Mapping

from ccm_agent.model.errors import UsageError
from ccm_ctl.secret_sources.contract import SourceRequest, ValueSource

FORMS = "use age:FILE#KEY, sops:FILE#KEY or vault:MOUNT/PATH#FIELD"


def open_source(text: str, *, identity: str, environ: Mapping[str, str]) -> ValueSource:
    """
    Return the source that a text specifies. Nothing is read yet.

    Args:
        text: The kind of source, the place, and, after the last `#`, the path to the value.
        identity: The file with the decryption key; "" for none.
        environ: Environment variables.

    Raises:
        InputError: The kind is unknown, a part of the text is missing, or a required package is not installed.
    """
    kind, colon, rest = text.partition(":")
    place, hash_sign, field = rest.rpartition("#") if "#" in rest else (rest, "", "")
    if not colon or not place or (hash_sign and not field) or not text.isprintable():
        # the error must not contain the text, because it could be a secret value
        raise UsageError(f"--from does not name a source; {FORMS}")
    request = SourceRequest(place=place, field=field, identity=identity, environ=environ)
    match kind:
        case "age":
            from ccm_ctl.secret_sources.age_file import AgeFile

            return AgeFile(request)
        case "sops":
            from ccm_ctl.secret_sources.sops_file import SopsFile

            return SopsFile(request)
        case "vault":
            from ccm_ctl.secret_sources.vault import VaultField

            return VaultField(request)
    raise UsageError(f"--from names a kind of source that does not exist; {FORMS}")

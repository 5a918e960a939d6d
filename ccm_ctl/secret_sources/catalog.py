"""Finds the source that an operator names: `age:FILE#KEY`, `sops:FILE#KEY` or `vault:MOUNT/PATH#FIELD`."""

from __future__ import annotations

from collections.abc import Mapping

from ccm_agent.model.errors import UsageError
from ccm_ctl.secret_sources.contract import SourceRequest, ValueSource

FORMS = "use age:FILE#KEY, sops:FILE#KEY or vault:MOUNT/PATH#FIELD"


def open_source(text: str, *, identity: str, environ: Mapping[str, str]) -> ValueSource:
    """
    The source that a text names. Nothing is read yet.

    Args:
        text: Kind, place, and the path to the value after the last `#`.
        identity: The file with the key that opens it; "" for none.
        environ: Environment variables.

    Raises:
        InputError: There is no such kind, something is missing in the text, or a package for it is not installed.
    """
    kind, colon, rest = text.partition(":")
    place, hash_sign, field = rest.rpartition("#") if "#" in rest else (rest, "", "")
    if not colon or not place or (hash_sign and not field) or not text.isprintable():
        # the text is not repeated, because it could be a value
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

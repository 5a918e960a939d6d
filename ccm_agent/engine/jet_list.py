"""The list of resources that a Jet template next to the manifest renders (`ccm.resources_jet_file`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.model import codec
from ccm_agent.model.errors import ManifestError, Place

if TYPE_CHECKING:
    from ccm_agent.manifest.document import ManifestDocument
    from ccm_agent.manifest.expressions import Expressions


def resources_from_jet(
    name: str, expressions: Expressions, document: ManifestDocument
) -> tuple[list[Any], ManifestDocument]:
    """
    Return the raw resources in the template's output, and the output as the document that contains them.

    Raises:
        InputError: The template cannot be read or rendered, or does not print a list.
    """
    text = expressions.jet_file(name)
    source = f"{name} (rendered)"
    raw = codec.decode_manifest(text, source) if text.strip() else None
    if not isinstance(raw, list) or not any(raw):
        what = "no list" if raw and not isinstance(raw, list) else "nothing"
        message = f"the template {name} printed {what}: it must print resources, each beginning with `- `"
        raise ManifestError(message, place=Place(document.name))
    return raw, type(document)(text=text, name=source, directory=document.directory, digest=document.digest)

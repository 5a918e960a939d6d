"""The interface of sources of secrets, and their errors. Errors never contain a value, a key or a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from ccm_agent.model.errors import InputError
from ccm_agent.model.secret import Secret


class ValueSource(Protocol):
    """A place outside the fleet that contains one value."""

    async def read(self) -> Secret:
        """
        Return the current value. Its length is not checked.

        Raises:
            InputError: The value cannot be read. See the subclasses in this module.
        """
        ...


class SourceRequest(Struct, frozen=True, kw_only=True):
    """
    A source as the operator specified it.

    Attributes:
        place: The file, or the path in a store.
        field: The path to the value within the place; "" for the whole content.
        identity: The file with the decryption key; "" for none.
        environ: Environment variables, which may contain credentials.
    """

    place: str
    field: str
    identity: str
    environ: Mapping[str, str]

    def __repr__(self) -> str:
        return f"SourceRequest({self.shown!r})"

    @property
    def shown(self) -> str:
        """The place and the path to the value, for errors."""
        return f"{self.place}#{self.field}" if self.field else self.place


class SourceUnreachableError(InputError):
    """A source of secrets is down, sealed, slow or not trusted."""

    code = "secret.source_unreachable"


class SourceDeniedError(InputError):
    """A source of secrets refuses access, or none of the given keys can decrypt it."""

    code = "secret.source_denied"


class SourceMissingError(InputError):
    """A source of secrets does not contain this value."""

    code = "secret.source_missing"


class SourceValueError(InputError):
    """The value in a source of secrets is damaged or is not text."""

    code = "secret.source_invalid"

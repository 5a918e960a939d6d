"""Read files with secrets, and find values in decrypted documents. Errors contain the path to a value, but no content."""

from __future__ import annotations

from pathlib import Path

from ccm_agent.model.codec import as_text, decode_document
from ccm_agent.model.errors import DocumentError
from ccm_agent.model.secret import Secret
from ccm_ctl.secret_sources.contract import (
    SourceDeniedError,
    SourceMissingError,
    SourceRequest,
    SourceUnreachableError,
    SourceValueError,
)

DOCUMENT_LIMIT_BYTES = 1 << 20
"""The maximum size of a file, which is enough for a document with many secrets."""


def read_limited(path: str) -> bytes:
    """
    Read a file up to the size limit. Blocking.

    Raises:
        SourceMissingError: The file does not exist.
        SourceDeniedError: This user may not read the file.
        SourceUnreachableError: The file cannot be read.
        SourceValueError: The file is too large.
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read(DOCUMENT_LIMIT_BYTES + 1)
    except FileNotFoundError:
        raise SourceMissingError(f"{path}: there is no such file") from None
    except PermissionError:
        raise SourceDeniedError(f"{path}: cannot be read: permission denied") from None
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) else "the name cannot be used"
        raise SourceUnreachableError(f"{path}: cannot be read: {reason}") from None
    if len(raw) > DOCUMENT_LIMIT_BYTES:
        raise SourceValueError(f"{path}: larger than {DOCUMENT_LIMIT_BYTES >> 10} KiB")
    return raw


def value_in(plain: bytes, request: SourceRequest) -> Secret:
    """
    Return the value in a decrypted file: the whole file, or one text of a JSON or YAML document.

    Raises:
        SourceMissingError: The document does not have the value.
        SourceValueError: The value is not a text.
    """
    try:
        if not request.field:
            return Secret(as_text(plain))
        document = decode_document(plain)
    except DocumentError as err:
        # do not show the parser's error, because it may quote a line of the document
        what = "JSON or YAML" if request.field else "text"
        line = f", line {err.place.line}" if err.place and err.place.line else ""
        raise SourceValueError(f"{request.shown}: the decrypted text is not {what}{line}") from None
    return text_at(document, request)


def text_at(document: object, request: SourceRequest) -> Secret:
    """
    Return one text of a document. At each level, the rest of the path is first tried as one key, because a key may contain dots.

    Raises:
        SourceMissingError: There is no value at the path.
        SourceValueError: The value is not a text.
    """
    rest, value = request.field, document
    while rest:
        if isinstance(value, dict) and rest in value:
            value, rest = value[rest], ""
            break
        key, _, rest = rest.partition(".")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and key.isascii() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise SourceMissingError(f"{request.shown}: there is no such value")
    if not isinstance(value, str):
        raise SourceValueError(f"{request.shown}: not text; name a single value, and put numbers in quotes")
    return Secret(value)

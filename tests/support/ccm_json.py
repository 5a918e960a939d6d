"""What a test knows of the JSON documents of `ccm --json`: each must fit its published schema and have no field beside it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas/v1"


def checked(name: str, text: str) -> Any:
    """
    Read a document, and hold it against the schema of this name.

    Raises:
        AssertionError: It does not fit, or has a field that the schema does not know.
    """
    document = json.loads(text)
    if error := next(_validator(name).iter_errors(document), None):
        raise AssertionError(f"{name}: {error.json_path}: {error.message}\n{text[:2000]}")
    return document


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text())
    definitions = {
        key: {**one, "additionalProperties": False} if "properties" in one else one
        for key, one in schema["$defs"].items()
    }
    return Draft202012Validator({**schema, "$defs": definitions})

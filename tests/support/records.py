"""What a test knows of the records of `ccmctl --json`: each must fit its published schema and have no field beside it."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from jsonschema import Draft202012Validator

from ccm_ctl.render.record_types.catalog import record_schema


def check_records(records: Sequence[dict[str, Any]]) -> None:
    """
    Hold records against the schema of their kind.

    Raises:
        AssertionError: A record does not fit, is of no known kind, or has a field that `record_types` does not know.
    """
    for record in records:
        validator = _validators().get(record.get("record", ""))
        assert validator is not None, f"no kind of record: {json.dumps(record)[:300]}"
        if error := next(validator.iter_errors(record), None):
            path = ".".join(map(str, error.absolute_path))
            raise AssertionError(
                f"ccm_ctl/render/record_types does not fit: {path}: {error.message}\n{json.dumps(record)[:2000]}"
            )


@functools.cache
def _validators() -> dict[str, Draft202012Validator]:
    schema = record_schema()
    definitions = {name: _closed(one) for name, one in schema["$defs"].items()}
    kinds: dict[str, str] = schema["discriminator"]["mapping"]
    return {kind: Draft202012Validator({"$ref": path, "$defs": definitions}) for kind, path in kinds.items()}


def _closed(definition: dict[str, Any]) -> dict[str, Any]:
    return {**definition, "additionalProperties": False} if "properties" in definition else definition

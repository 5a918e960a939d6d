"""Reading a source of secrets in tests, with a look for what an error must not show."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping, Sequence

import pytest

from ccm_agent.model.errors import CcmError
from ccm_ctl.secret_sources.catalog import open_source

VALUE = "Kf9wQ2vLx7-plain"
"""The value that is read; no error may contain it."""


async def read_value(text: str, environ: Mapping[str, str] | None = None, *, identity: str = "") -> str:
    """What the source has, in the clear."""
    source = await asyncio.to_thread(open_source, text, identity=identity, environ=environ or {})
    found = await source.read()
    assert str(found) == "***"
    return found.reveal()


async def failure_of(
    text: str,
    environ: Mapping[str, str] | None = None,
    *,
    identity: str = "",
    hidden: Sequence[str] = (VALUE,),
) -> CcmError:
    """The error of reading a source, whose message and traceback have nothing that is hidden."""
    with pytest.raises(CcmError) as caught:
        await read_value(text, environ, identity=identity)
    shown = "".join(traceback.format_exception(caught.value))
    assert [one for one in hidden if one in shown] == []
    return caught.value

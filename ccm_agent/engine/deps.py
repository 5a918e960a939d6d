"""What an engine is given: the ports to the host, the types, and how facts, data and expressions come about."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.manifest.expressions import Expressions
from ccm_agent.model.codec import decode_manifest
from ccm_agent.model.ports import Clock, Files, Runner
from ccm_agent.model.registration import RegistrationEntry
from ccm_agent.model.secret import Masker
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import Probe

if TYPE_CHECKING:
    from ccm_agent.hiera.sources import Sources
    from ccm_agent.sessions.refresh_store import RefreshStore

MakeExpressions = Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, str], str], Expressions]
"""From facts, data, environment and the directory that relative paths begin in."""


class EngineDeps(Struct, frozen=True, kw_only=True):
    """
    Everything outside that an engine uses; `app.py` makes the real one.

    Attributes:
        runner, files, clock: Ports to the host.
        catalog: The resource types.
        make_expressions: See `MakeExpressions`.
        gather_facts: This host's facts with a layer over them, each gathered when it is first read. Reading blocks.
        sources: Fetches hiera documents; relative paths begin in the directory given.
        directory: Where relative paths of manifests and hiera documents begin: the working directory; absolute.
        port: A further port, by the name that `ResourceContext.port` knows it by; KeyError for one that there is not.
        read_document: Parses a manifest's text, whose name errors give.
        register: Publishes a service entry; None where there is no broker.
        probe: What providers ask about the host; None asks the host itself.
        version: Of this program, for events.
        resolve_path: An absolute path with all its symlinks resolved, for the node's policy; blocking.
        secrets: Learns what runs know to be secret, for the log of the process; None where there is no log.
        refreshes: Where it is kept which refreshes are pending; None: they are forgotten when a run ends.
    """

    runner: Runner
    files: Files
    clock: Clock
    catalog: Catalog
    make_expressions: MakeExpressions
    gather_facts: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    sources: Callable[[str], Sources]
    directory: str
    port: Callable[[str], Any]
    read_document: Callable[[str, str], object] = decode_manifest
    register: Callable[[RegistrationEntry], Awaitable[None]] | None = None
    probe: Probe | None = None
    version: str = ""
    resolve_path: Callable[[str], str] = os.path.realpath
    secrets: Masker | None = None
    refreshes: RefreshStore | None = None

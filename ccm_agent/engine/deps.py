"""The dependencies of an engine: host ports, resource types, and sources of facts, data and expressions."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.manifest.expressions import Expressions
from ccm_agent.model.codec import decode_manifest
from ccm_agent.model.ports import Clock, Files, Runner
from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.model.secret import Masker, OpenedSecret
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import Probe

if TYPE_CHECKING:
    from pathlib import Path

    from ccm_agent.engine.slots import NodeSlots
    from ccm_agent.hiera.sources import Sources
    from ccm_agent.sessions.refresh_store import RefreshStore

MakeExpressions = Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, str], str], Expressions]
"""Creates the expressions from facts, data, environment, and the base directory of relative paths."""


class EngineDeps(Struct, frozen=True, kw_only=True):
    """
    The external dependencies of an engine. `app.py` builds the real ones.

    Attributes:
        runner, files, clock: Ports to the host.
        catalog: The resource types.
        make_expressions: See `MakeExpressions`.
        gather_facts: Returns this host's facts, with the argument merged over them. Each fact is gathered on first access,
            which blocks.
        sources: Creates the fetcher of hiera documents. Relative paths start in the given directory.
        directory: The absolute base of relative paths of manifests and hiera documents, which is the working directory.
        port: Returns a further port by its name in `ResourceContext.port`; KeyError if this program does not have it.
        read_document: Parses a manifest's text. The second argument is the manifest's name in error messages.
        register: Publishes a service entry. None without a broker.
        probe: Checks the host for providers. With None, the real host is checked.
        version: This program's version, for events.
        resolve_path: Resolves all symlinks of an absolute path, for the node's policy. Blocking.
        secrets: Collects the secrets of all runs for the process's log. None without a log.
        refreshes: The store of pending refreshes. With None, they are forgotten when a run ends.
        open_secret: Opens a secret by name, in a thread; raises BusError. With None, this program cannot open secrets.
        slots: Takes slots of the fleet. With None, resources with `slots` fail because this program cannot take slots.
        creations: The folder with the records of the resources that runs created. With None, nothing is recorded or pruned.
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
    open_secret: Callable[[str], OpenedSecret] | None = None
    slots: NodeSlots | None = None
    creations: Path | None = None

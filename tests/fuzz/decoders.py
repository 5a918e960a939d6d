"""
Which functions of the programs decode input, and which of them a target runs.

Both are found, not listed: decoders by their name or by the library call in them, and what a target runs by letting it read its
samples under a profiler.
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

TOP = Path(__file__).parents[2]
PACKAGES = ("ccm_agent", "ccm_ctl")
CALLS = frozenset(
    (
        "msgspec.json.decode",
        "decoder.decode",
        "_decoder.decode",
        "json.loads",
        "base64.b64decode",
        "base64.b32decode",
        "base64.urlsafe_b64decode",
        "bytes.fromhex",
        "float.fromhex",
        "datetime.fromisoformat",
        "datetime.strptime",
        "shlex.split",
        "split_words",
        "struct.unpack",
        "zipfile.ZipFile",
        "Tar",
        "CParser",
    )
)
"""
A function that calls one of these decodes.

Not `decode_foreign`, which raises one error whatever the bytes are: it is fuzzed with every Struct of the wire.
"""

_TYPED = "typed by the person who runs the command"
_OWN = "written by this agent itself, in a record with a checksum"
_BROKER = "the broker's answer about itself, for a report to the person who asked"
_LOCAL = "the socket of this host's agent, which only root and the agent's user may open"

EXEMPT = {
    "ccm_agent.app_policy:_moment": _TYPED,
    "ccm_ctl.commands.keys.secret_values:make_value": "words that the operator typed, and text that is only decoded",
    "ccm_agent.cli.agent.agent_output:_moment": "a status that this program has written",
    "ccm_agent.storage.journal:Journal.read_at": _OWN,
    "ccm_agent.bus.connection.client:BusClient._parse_headers": "`parse_headers` and `broker_headers`, which are targets",
    "ccm_agent.agent.process.control_socket:_peer": "the kernel's word about a peer",
    "ccm_agent.agent.process.control_socket:ask": _LOCAL,
    "ccm_agent.agent.runs.recovery:Recovery._take_over": _OWN,
    "ccm_agent.agent.runs.recovery:_sum_up": _OWN,
    "ccm_agent.storage.spool_segment:_kept": "the decoder of the spool, which is a target, with the same errors handled",
    "ccm_agent.storage.spool_files:SpoolFiles.load": _OWN,
    "ccm_agent.templates.selector:parse_targets": "several texts for `parse_selector`, which is a target",
    "ccm_agent.facts.netlink:_dump": "the kernel's answer; `parse_links` and `parse_addresses` read it and are targets",
    "ccm_agent.health.goss.matchers:_looked_up": "JSON for the library, then `gjson`, which is a target",
    "ccm_agent.health.goss.network:_addresses": "printed by ip(8) of this host",
    "ccm_agent.plugins.program:_words": "`split_words`, which is a target",
    "ccm_agent.resources.exec.providers.posix:_argv": "`split_words`, which is a target",
    "ccm_agent.resources.exec.resource:_check_name": "`split_words`, which is a target",
    "ccm_agent.resources.config.__init__:_gather": _TYPED,
    "ccm_agent.resources.config.providers.existing:_why_left_out": "a text that this program has just encoded",
    "ccm_agent.resources.edited_files:check_validate": "`split_words`, which is a target",
    "ccm_agent.resources.file_editor:FileEditor._validate": "`split_words`, which is a target",
    "ccm_agent.resources.scaffold.providers.post:_split_command": "`split_words`, which is a target",
    "ccm_agent.model.codec:decode_as": "`decode_document`, which is a target, then the conversion of `parse_config`",
    "ccm_agent.model.formats.moments:parse_moment": _TYPED,
    "ccm_ctl.commands.runs.targets:parse_deadline": "`parse_moment`",
    "ccm_ctl.commands.events.events:_parse_where": _TYPED,
    "ccm_ctl.commands.events.notify:_rule": _TYPED,
    "ccm_ctl.commands.schedules.schedule:parse_when": _TYPED,
    "ccm_ctl.commands.runs.ensure:Ensure.parse_args": _TYPED,
    "ccm_ctl.commands.runs.ensure:_add_pair": _TYPED,
    "ccm_ctl.commands.runs.exec:Exec.parse_args": _TYPED,
    "ccm_ctl.commands.data.facts:_parse_arguments": _TYPED,
    "ccm_ctl.commands.runs.properties:_schema": "a schema that this program ships",
    "ccm_agent.clikit.commands:BaseCommand.parse_args": _TYPED,
    "ccm_ctl.dashboard.access:Access.unseal": "a cookie whose signature is compared first",
    "ccm_ctl.dashboard.access:Access._session_of": "a cookie that this dashboard has signed",
    "ccm_ctl.dashboard.oidc_pages:attempt_of": "a cookie that this dashboard has signed",
    "ccm_ctl.notify.server:NotificationServer.look": "a cursor that this process has just encoded",
    "ccm_ctl.notify.server:NotificationServer.open": "the state file of this server, which only its user may write",
    "ccm_ctl.fleet.doctor.broker_checks:_configured_accounts": _BROKER,
    "ccm_ctl.fleet.doctor.broker_checks:judge_configuration": _BROKER,
    "ccm_ctl.fleet.doctor.renewal:find_signer_entry": "the person's own credentials file, for a suggestion",
    "ccm_ctl.fleet.runs.open_runs:_is_overdue": "a time in a record; what is none counts as not overdue",
    "ccm_ctl.fleet.runs.run_request:_on_record": "a request that this program has just encoded",
    "ccm_ctl.demo.processes:wait_present": "printed by the ccmctl that the demo has started",
    "ccm_ctl.demo.server_download:download_server": "a page that is searched by a pattern; the file has a known digest",
    "ccm_ctl.fleet.keys.moving:_listed": "the broker's list of connections, asked for with the key of its system account",
}
"""Decoders that no target runs, and why."""


def decoders() -> set[str]:
    """Every function that decodes, as `module:qualified.name`."""
    paths = (path for package in PACKAGES for path in (TOP / package).rglob("*.py"))
    return {
        f"{_module(path)}:{name}"
        for path in paths
        if "testing" not in path.parts
        for name in decoders_in(path)
    }


def decoders_in(path: Path) -> set[str]:
    """The qualified names of a file's functions that decode."""
    return set(_decoders_below(ast.parse(path.read_text()), ""))


def _decoders_below(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if _is_decoder(child):
                yield prefix + child.name
            yield from _decoders_below(child, f"{prefix}{child.name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            yield from _decoders_below(child, f"{prefix}{child.name}.")
        else:
            yield from _decoders_below(child, prefix)


def _module(path: Path) -> str:
    return ".".join(path.relative_to(TOP).with_suffix("").parts)


def _is_decoder(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if function.name.lstrip("_").startswith(("parse_", "decode_")):
        return True
    calls = (ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(call in CALLS or call.endswith((".unpack_from", "_HEAD.unpack")) for call in calls)


def run_by(targets: Iterable[Target]) -> set[str]:
    """Every function of the programs that targets run when they read their samples; in a process where caches are empty."""
    seen: set[tuple[str, str]] = set()

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            seen.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(profile)
    try:
        for target in targets:
            for sample in target.samples:
                with contextlib.suppress(*target.raises):
                    target.read(sample)
    finally:
        sys.setprofile(None)
    prefixes = tuple(f"{TOP / package}/" for package in PACKAGES)
    return {f"{_module(Path(file))}:{name}" for file, name in seen if file.startswith(prefixes)}


if __name__ == "__main__":
    sys.stdout.write("\n".join(sorted(run_by(TARGETS))))

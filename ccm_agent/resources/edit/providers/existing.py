"""The blocks that ccm wrote into a file, for `ccm import edit:PATH`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ccm_agent.model.errors import CcmError, UsageError
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.edit.lines import edit_content
from ccm_agent.resources.edit.model import BEGIN, END, EditProperties
from ccm_agent.resources.edit.resource import check
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_relative
from ccm_agent.resources.file_editor import read_existing
from ccm_agent.resources.secret_signs import find_sign

READ_BYTES = 1 << 20
BLOCKS_LIMIT = 100


async def find_blocks(context: ResourceContext, path: str) -> ExistingResources:
    """
    Return the blocks between the lines `# BEGIN ccm` and `# END ccm`, with or without a name, each as one resource.

    No other part of a file shows that an edit manages it. A block without a counterpart of its marker, or with signs of a
    secret, is left out and reported by name.

    Raises:
        UsageError: The path is not absolute, or the file has no such block.
        FileError: The file does not exist.
    """
    refuse_relative("edit", path, "/etc/hosts")
    builder = ExistingBuilder("edit", EditProperties, check)
    content, reason = await read_existing(context, path, READ_BYTES)
    if reason:
        builder.leave_out(path, reason)
    else:
        await asyncio.to_thread(_add_blocks, builder, path, content)
    return builder.result()


def _add_blocks(builder: ExistingBuilder[EditProperties], path: str, content: bytes) -> None:
    """Add the blocks. Blocking."""
    blocks = dict(_blocks(content))
    if not blocks:
        raise UsageError(
            f"edit:{path}: it has no block between `{BEGIN}` and `{END}`, and nothing else shows what an edit manages; write "
            f"file:{path} for the whole file, or config:{path} for its keys"
        )
    if len(blocks) > BLOCKS_LIMIT:
        builder.leave_out(path, f"has {len(blocks)} blocks, and at most {BLOCKS_LIMIT} are imported")
        return
    for label, lines in blocks.items():
        name = label.removeprefix(": ") or path
        block = "".join(f"{line}\n" for line in lines)
        wanted = EditProperties(name=name, path=path if label else "", block=block)
        if sign := find_sign(content=block.encode(errors="surrogateescape"), mode=0o644):
            builder.leave_out(path, f"its block `{name}` {sign}")
        elif reason := _why_left_out(wanted, content):
            builder.leave_out(path, f"its block `{name}` {reason}")
        else:
            builder.add(name, {"path": path, "block": block} if label else {"block": block})


def _blocks(content: bytes) -> Iterator[tuple[str, list[str]]]:
    """Yield the label of each block (`: NAME`, or "") with its lines."""
    text = content.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    for number, line in enumerate(lines):
        label = line.removeprefix(BEGIN)
        if line.startswith(BEGIN) and (not label or (label.startswith(": ") and label[2:])):
            end = f"{END}{label}"
            until = lines.index(end, number) if end in lines[number:] else number + 1
            yield label, lines[number + 1 : until]


def _why_left_out(wanted: EditProperties, content: bytes) -> str:
    if any("\udc80" <= one <= "\udcff" for one in f"{wanted.name}{wanted.block}"):
        return "is not UTF-8"
    try:
        return "" if edit_content(content, wanted.changes) == content else "would be changed by an apply"
    except CcmError as err:
        return f"cannot be managed: {err.message}"

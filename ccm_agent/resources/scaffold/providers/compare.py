"""Determines the files to compare for a diff of a scaffold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.model.ports import Digest, Files
from ccm_agent.model.resource import ABSENT
from ccm_agent.resources.tree_changes import ChangedFile, compare_files

if TYPE_CHECKING:
    from ccm_agent.resources.changes import FileChange
    from ccm_agent.resources.scaffold.providers.plan import ScaffoldPlan

_MADE_BY_COMMAND = "a `post` command may change the content"


async def compare_scaffold(files: Files, plan: ScaffoldPlan) -> list[FileChange]:
    """Return the changes of the files that would be written or removed, sorted; see `compare_files`."""
    wanted, look = plan.wanted, plan.look
    is_removal = wanted.ensure == ABSENT
    differing = {
        path for path, state in look.files.items() if (state != "absent" if is_removal else state != "same")
    }
    if not is_removal:
        differing |= plan.unknown
    purged = {path for path in look.extra if path} if wanted.purge and not is_removal else set()
    changed = []
    for path in sorted(differing | purged):
        stays = not is_removal and path not in purged
        content, why = _content(plan, path) if stays else (None, "")
        changed.append(
            ChangedFile(
                path=f"{wanted.name.rstrip('/')}/{path}",
                was_there=look.files.get(path) != "absent",
                stays=stays,
                content=content,
                why=why,
            )
        )
    return await compare_files(files, changed)


def _content(plan: ScaffoldPlan, path: str) -> tuple[bytes | None, str]:
    content = plan.expected.get(path)
    if path in plan.unknown or content is None or isinstance(content, Digest):
        return None, _MADE_BY_COMMAND
    return content, ""

"""The version of both programs, in a module without imports. `pyproject.toml` has the same version."""

VERSION = "1.0.0"

COMMIT_FILE = "commit.txt"
"""A file next to this module in packages, with the commit of the build."""

_SHOWN = 8


def version_line(program: str) -> str:
    """Return the output of `--version`: the program, the version, and the commit if it is known."""
    here = __file__.rpartition("/")[0]
    commit = _line(f"{here}/{COMMIT_FILE}") or _commit_of_checkout(f"{here}/../.git")
    return f"{program} {VERSION}" + (f" ({commit[:_SHOWN]})" if commit else "")


def _commit_of_checkout(folder: str) -> str:
    if pointer := _line(folder):  # in a worktree, `.git` is a file with the path of the folder
        folder = pointer.removeprefix("gitdir: ")
    head = _line(f"{folder}/HEAD")
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ")
    above = _line(f"{folder}/commondir")
    return _line(f"{folder}/{name}") or _line(f"{folder}/{above or '.'}/{name}")


def _line(path: str) -> str:
    """Return the first line of a file; "" if there is none."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 -- pathlib costs an import
            return file.readline().strip()
    except OSError:
        return ""

"""Convert the values of flags to inputs of the engine."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any

from ccm_agent.cli.terminal import warn
from ccm_agent.clikit.properties import split_pair
from ccm_agent.model import merge
from ccm_agent.model.codec import decode_document
from ccm_agent.model.errors import UsageError

ENV_FILE = ".env"
MANIFEST_FILE = "manifest.yaml"
"""The name of a directory's manifest."""
DATA_LIMIT_BYTES = 16 << 20
"""The maximum size of a file that a flag names."""


def pairs(texts: tuple[str, ...], flag: str) -> dict[str, str]:
    """Return `K=V` or `K:V` texts as a mapping. The last value of a key takes precedence. UsageError for any other text."""
    found = {}
    for text in texts:
        pair = split_pair(text)
        if pair is None:
            raise UsageError(f"{flag} {text}: write NAME=VALUE")
        found[pair[0]] = pair[1]
    return found


def read_text(path: str, flag: str) -> str:
    """Return the content of a file that a flag names; UsageError if it cannot be read."""
    try:
        # opening a pipe that has no writer would block without O_NONBLOCK
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{flag} {path}: is not a regular file")
            data = file.read(DATA_LIMIT_BYTES + 1)
    except OSError as err:
        raise UsageError(f"{flag} {path}: {err.strerror}") from err
    if len(data) > DATA_LIMIT_BYTES:
        raise UsageError(f"{flag} {path}: it is larger than {DATA_LIMIT_BYTES >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        raise UsageError(f"{flag} {path}: it is not UTF-8 text") from err


def manifest_path(path: str) -> str:
    """Return the path of the manifest that an argument names: a file, or the manifest of a directory."""
    return os.path.join(path, MANIFEST_FILE) if os.path.isdir(path) else path  # noqa: PTH112, PTH118 - pathlib is slow to import


def rewrite(path: str, text: str) -> None:
    """
    Replace the text of a file, keeping its owner and mode.

    Raises:
        UsageError: The file cannot be written.
    """
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:  # noqa: PTH123 - pathlib is slow to import
            file.write(text)
    except OSError as err:
        raise UsageError(f"{path}: cannot be written: {err.strerror}") from err


def read_mapping(path: str, flag: str) -> dict[str, Any]:
    """Return the mapping in a JSON or YAML file; {} if the file is empty. UsageError or DocumentError for any other content."""
    value = decode_document(read_text(path, flag), path)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"{flag} {path}: must be a mapping, such as `env: prod`")
    return value


def more_facts(fact: tuple[str, ...], facts: str | None) -> Mapping[str, Any]:
    """Return the facts of `--facts FILE` and `--fact K=V`. `--fact` takes precedence, and its values are always text."""
    from_file = read_mapping(facts, "--facts") if facts else {}
    return merge.deep(from_file, pairs(fact, "--fact"))


def environment(read_env: bool | None) -> dict[str, str]:
    """
    Return the `Environ` of expressions: the process environment, overridden by the file `.env`.

    Empty variables are left out, as in Choria CCM, so that defaults apply.

    Args:
        read_env: Whether to read `.env`. None means yes, unless this process runs as root and another user could have written it.
    """
    found = dict(os.environ)
    if read_env is not False and os.path.isfile(ENV_FILE):  # noqa: PTH113 - pathlib is slow to import
        from ccm_agent.cli.implicit import why_not_trusted

        if why := "" if read_env else why_not_trusted(ENV_FILE):
            warn(
                f"{os.path.abspath(ENV_FILE)} was not read: {why}; fix its owner and mode, or pass --read-env"  # noqa: PTH100
            )
        else:
            found.update(parse_env(read_text(ENV_FILE, "--read-env")))
    return {key: value for key, value in found.items() if value}


def parse_env(text: str) -> dict[str, str]:
    """Return the variables of an `.env` file: NAME=VALUE lines with optional quotes. Other lines are ignored."""
    found = {}
    for line in text.splitlines():
        name, mark, value = line.removeprefix("export ").partition("=")
        if not mark or not name or name.lstrip().startswith("#"):
            continue
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name] = value
    return found

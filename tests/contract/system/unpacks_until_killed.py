"""
Unpack an archive again and again, each time in a child that kills itself some steps later than the one before.

Afterwards it is unpacked once more, and lives. Prints one JSON line for each child: the step, whether it was killed, what it left
(whole files, torn ones, hidden names), and what is there in the end.

    python unpacks_until_killed.py DIRECTORY
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator

from ccm_agent.model.ports import Packed
from ccm_agent.system.archives.unpack import unpack
from ccm_agent.system.threads import CancelFlag
from tests.contract.system.stores_until_killed import kill_at

FILES = {"lib/one": "1" * 100_000, "bin/app": "#!/bin/sh\n", "bin/more": "2" * 1000}
STEP = 9
"""Of all steps so many are passed over between two kills."""


def archive() -> bytes:
    """A gzipped tar of the files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as packed:
        for name, content in FILES.items():
            info = tarfile.TarInfo(name)
            info.size, info.uid, info.gid = len(content), os.getuid(), os.getgid()
            packed.addfile(info, io.BytesIO(content.encode()))
    return gzip.compress(out.getvalue(), mtime=0)


def left(top: str) -> Iterator[tuple[str, str]]:
    """Each file with "whole", "torn" or "hidden"."""
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.relpath(f"{folder}/{name}", top)
            if "/.ccm-" in f"/{path}":
                yield path, "hidden"
            else:
                with open(f"{folder}/{name}") as file:
                    yield path, "whole" if file.read() == FILES[path] else "torn"


def main(directory: str) -> None:
    """Until a child lives to the end."""
    with open(f"{directory}/a.tar.gz", "wb") as file:
        file.write(archive())
    packed = Packed(path=f"{directory}/a.tar.gz", kind="tar.gz", proof="bin")
    into = f"{directory}/into"
    for step in range(1, 100_000, STEP):
        child = os.fork()
        if child == 0:
            kill_at(step)
            unpack(packed, into, CancelFlag())
            sys.setprofile(None)
            os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        found = dict(left(into)) if os.path.isdir(into) else {}
        unpack(packed, into, CancelFlag())
        end = dict(left(into))
        print(json.dumps({"step": step, "killed": killed, "left": found, "end": end}))
        shutil.rmtree(into)
        if not killed:
            return


if __name__ == "__main__":
    main(sys.argv[1])

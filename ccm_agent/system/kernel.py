"""
Implements the `Kernel` port for this host, with files below /proc/sys.

Source: proc_sys(5).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import KernelValue
from ccm_agent.system.threads import Threads

ROOT = "/proc/sys"
LIMIT_BYTES = 64 << 10
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_WRITE = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

_REFUSALS = {
    errno.EINVAL: "the kernel does not accept {value!r}",
    errno.ERANGE: "{value!r} is out of range",
    errno.EROFS: "/proc/sys is read-only here, as in most containers",
    errno.EACCES: "permission denied; only root can set it, and some parameters only the kernel",
    errno.EPERM: "permission denied; only root can set it, and some parameters only the kernel",
    errno.ENOENT: "the kernel has no such parameter",
}


class SystemKernel:
    """
    Parameters of the running kernel; see `Kernel`.

    Args:
        root: The directory of the parameters.
    """

    def __init__(self, root: str = ROOT) -> None:
        self._root = f"{root}/"
        self._threads = Threads("ccm-kernel", 1)

    async def read(self, paths: Sequence[str]) -> list[KernelValue]:
        return await self._threads.call(self._read_all, paths)

    async def set(self, path: str, value: str) -> None:
        await self._threads.call(self._set, path, value)

    def _read_all(self, paths: Sequence[str]) -> list[KernelValue]:
        return [self._read(path) for path in paths]

    def _read(self, path: str) -> KernelValue:
        try:
            fd = self._open(path, _OPEN)
        except (FileNotFoundError, NotADirectoryError):
            return KernelValue(path=path)
        except OSError as err:
            return KernelValue(path=path, exists=True, error=err.strerror or str(err))
        try:
            is_read_only = bool(os.fstatvfs(fd).f_flag & os.ST_RDONLY)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                why = "it is a group of parameters, not a parameter"
                return KernelValue(path=path, exists=True, is_read_only=is_read_only, error=why)
            content = os.read(fd, LIMIT_BYTES)
        except OSError as err:
            return KernelValue(path=path, exists=True, error=err.strerror or str(err))
        finally:
            os.close(fd)
        value = content.decode(errors="replace").strip("\n")
        return KernelValue(path=path, value=value, exists=True, is_read_only=is_read_only)

    def _set(self, path: str, value: str) -> None:
        try:
            fd = self._open(path, _WRITE)
            try:
                # use a single call, because each write(2) sets a complete value
                os.write(fd, f"{value}\n".encode())
            finally:
                os.close(fd)
        except OSError as err:
            why = _REFUSALS.get(err.errno or 0, err.strerror or str(err)).format(value=value)
            raise FileError(f"{path} cannot be set: {why}", errno=err.errno or 0) from err

    def _open(self, path: str, flags: int) -> int:
        if not path.startswith(self._root) or ".." in path.split("/") or "\0" in path:
            raise FileError(f"{path!r} is not a kernel parameter")
        return os.open(path, flags)

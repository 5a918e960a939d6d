"""
`ccm` and `ccmctl` that start at once: a process that has imported everything and forks for each call.

Conformance cases call the program a thousand times, and importing would take nine tenths of that. `warm_ccm` gives the path of
a small program that hands its arguments, environment, directory and standard streams over to the fork and ends as that ends.
Each call has a process of its own, so nothing that one does is seen by another.

Signals are not handed over: to interrupt a command, or to leave it running, start the real program.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_SHIM = """#!{python} -IS
import os, sys, _socket
s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
s.connect({address!r})
words = [{program!r}, os.getcwd(), str(len(sys.argv) - 1), *sys.argv[1:], *(k + "=" + v for k, v in os.environ.items())]
data = "\\0".join(words).encode("utf-8", "surrogateescape")
fds = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
s.sendmsg([len(data).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
while data:
    data = data[s.send(data):]
code = s.recv(1)
os._exit(code[0] if code else 70)
"""


@contextmanager
def warm_ccm() -> Iterator[Path]:
    """The path of a program that behaves as `ccm` does, for as long as the context lasts."""
    with warm_programs("ccm") as folder:
        yield folder / "ccm"


@contextmanager
def warm_programs(*programs: str) -> Iterator[Path]:
    """A folder with programs of these names (`ccm`, `ccmctl`) that behave as the real ones do, as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="warm-ccm-") as folder:
        address = str(Path(folder) / "socket")
        for program in programs:
            shim = Path(folder) / program
            shim.write_text(_SHIM.format(python=sys.executable, address=address, program=program))
            shim.chmod(0o755)
        server = subprocess.Popen(
            [sys.executable, __file__, address, *programs],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
        try:
            assert server.stdout is not None
            if server.stdout.readline() != b"ready\n":
                raise RuntimeError("the warm programs did not start")
            yield Path(folder)
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.communicate()


def _import_everything(programs: Sequence[str]) -> None:
    import importlib
    import pkgutil

    import ccm_agent
    import ccm_ctl
    from ccm_agent.resources.catalog import Catalog

    rooms = ("testing",) if "ccmctl" in programs else ("agent", "bus", "testing", "registration")
    for module in pkgutil.walk_packages(ccm_agent.__path__, "ccm_agent."):
        if module.name.split(".")[1] not in rooms and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    importlib.import_module("ccm_agent.__main__")
    if "ccmctl" in programs:
        for module in pkgutil.walk_packages(ccm_ctl.__path__, "ccm_ctl."):
            importlib.import_module(module.name)
    Catalog().all()


def _serve(address: str, programs: Sequence[str]) -> None:
    _import_everything(programs)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the forks reap themselves
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        call, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(call)
        call.close()


def _answer(call: socket.socket) -> None:
    """Run one call in a process below this one, so that its end can be told whatever it is."""
    head, fds, _, _ = socket.recv_fds(call, 8, 3)
    left = int.from_bytes(head, "little")
    data = b""
    while len(data) < left:
        data += call.recv(left - len(data))
    pid = os.fork()
    if pid == 0:
        call.close()
        _run(data.decode("utf-8", "surrogateescape").split("\0"), fds)
    for fd in fds:
        os.close(fd)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    call.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def _run(words: list[str], fds: list[int]) -> None:
    program, directory, count, *rest = words
    arguments, variables = rest[: int(count)], rest[int(count) :]
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update({name: value for name, _, value in (variable.partition("=") for variable in variables)})
    sys.argv = [program, *arguments]
    code = 0
    try:
        if program == "ccmctl":
            from ccm_ctl.__main__ import main as ccmctl

            code = ccmctl()
        else:
            from ccm_agent.__main__ import main

            main()
    except SystemExit as err:
        code = err.code if isinstance(err.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter would, at the end of a process
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2:])

"""
`ccm` and `ccmctl` that start at once: a process that has imported everything and forks for each call.

Tests call the programs thousands of times, and importing would take nine tenths of that. There are two ways to call:

- `warm_ccm` and `warm_programs` give the path of a small program that hands its arguments, environment, directory and standard
  streams over to the fork and ends as that ends. Signals are not handed over: to interrupt a command, or to leave it running,
  call in the other way or start the real program.
- `tests/support/processes.py` asks for a fork itself, and knows its process id.

Each call has a process of its own, so nothing that one does is seen by another.
"""

import atexit
import gc
import importlib
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
MODULES = {"ccm": "ccm_agent", "ccmctl": "ccm_ctl"}
"""The module of each program."""

IMPORTED_LATE = ("concurrent.futures.thread", "yaml", "jinja2", "nkeys", "re2", "aiohttp")
"""What the programs import when they use it, and so no import of theirs brings."""

NUMBER_BYTES = 4
"""Size of the process id and of the exit code, the two numbers that a caller is answered with."""

_SHIM = """#!{python} -IS
import os, sys, _socket
s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
s.connect({address!r})
words = [{module!r}, {program!r}, os.getcwd(), "", str(len(sys.argv) - 1), *sys.argv[1:]]
data = "\\0".join([*words, *(k + "=" + v for k, v in os.environ.items())]).encode("utf-8", "surrogateescape")
fds = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
s.sendmsg([len(data).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
while data:
    data = data[s.send(data):]
said = b""
while len(said) < 8:
    more = s.recv(8 - len(said))
    if not more:
        os._exit(70)
    said += more
code = int.from_bytes(said[4:], "little", signed=True)
os._exit(code if code >= 0 else 128 - code)
"""


@contextmanager
def warm_ccm() -> Iterator[Path]:
    """The path of a program that behaves as `ccm` does, for as long as the context lasts."""
    with warm_programs("ccm") as folder:
        yield folder / "ccm"


@contextmanager
def warm_programs(*programs: str) -> Iterator[Path]:
    """A folder with programs of these names (`ccm`, `ccmctl`) that behave as the real ones do, as long as the context lasts."""
    with (
        tempfile.TemporaryDirectory(prefix="warm-ccm-") as folder,
        warm_server(Path(folder), programs) as address,
    ):
        for program in programs:
            shim = Path(folder) / program
            values = {"address": address, "program": program, "module": MODULES[program]}
            shim.write_text(_SHIM.format(python=sys.executable, **values))
            shim.chmod(0o755)
        yield Path(folder)


@contextmanager
def warm_server(folder: Path, programs: Sequence[str]) -> Iterator[str]:
    """The address of a process that forks for calls, as long as the context lasts; what it forked may live longer."""
    address = str(folder / "socket")
    server = subprocess.Popen(
        [sys.executable, __file__, address, *programs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=TOP,
        env=os.environ | {"PYTHONPATH": str(TOP)},
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        if server.stdout.readline() != b"ready\n":
            raise RuntimeError("the warm programs did not start")
        yield address
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.communicate()


def _import_everything(programs: Sequence[str]) -> None:
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
    for name in IMPORTED_LATE:
        importlib.import_module(name)


def _serve(address: str, programs: Sequence[str]) -> None:
    _import_everything(programs)
    gc.collect()
    gc.freeze()  # a fork that looks for garbage would copy all that it shares with this process
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the forks reap themselves
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while (
        sys.stdin.fileno() not in select.select([listener, sys.stdin], [], [])[0]
    ):  # until the caller has ended
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
    module, program, directory, session, count, *rest = data.decode("utf-8", "surrogateescape").split("\0")
    in_session, is_in_session = os.pipe()
    pid = os.fork()
    if pid == 0:
        call.close()
        if session:
            os.setsid()
        os.close(in_session)
        os.close(is_in_session)
        _run(module, program, directory, rest[: int(count)], rest[int(count) :], fds)
    os.close(is_in_session)
    for fd in fds:
        os.close(fd)
    os.read(in_session, 1)  # its end: who called may signal the process group at once
    try:
        call.sendall(pid.to_bytes(NUMBER_BYTES, "little"))
        _, status = os.waitpid(pid, 0)
        call.sendall(os.waitstatus_to_exitcode(status).to_bytes(NUMBER_BYTES, "little", signed=True))
    except BrokenPipeError:
        os._exit(0)  # who called has ended
    os._exit(0)


def _run(
    module: str, program: str, directory: str, arguments: list[str], variables: list[str], fds: list[int]
) -> None:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update({name: value for name, _, value in (variable.partition("=") for variable in variables)})
    sys.argv = [program, *arguments]
    code = 0
    try:
        name = f"{module}.__main__" if module in MODULES.values() else module
        code = importlib.import_module(name).main() or 0
    except SystemExit as err:
        code = err.code if isinstance(err.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter would, at the end of a process
        sys.excepthook(*sys.exc_info())
        code = 1
    # as the interpreter ends, but for taking down what it has imported
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2:])

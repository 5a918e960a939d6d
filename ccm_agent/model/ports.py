"""
Ports: the Protocols through which the core uses the host and the broker.

Each port has an adapter in `system/` or `bus/` and a fake in `testing/`, and the same contract tests run on
both. A port raises only errors of `model/errors.py`. It does not keep a lock or handle between two calls unless
its docstring documents that.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.secret import Secret


class Command(Struct, frozen=True, kw_only=True):
    """
    A program to run, without a shell.

    Attributes:
        argv: The program and its arguments. A name without a slash is looked up in `search_path`.
        search_path: Absolute directories, separated by colons; "" uses the PATH of this process. It is not passed to the child.
        env: Environment variables of the child, in addition to PATH, LANG=C and LC_ALL=C. The child receives no others.
        cwd: Working directory, absolute.
        stdin: Input of the child; None for no input.
        output_limit_bytes: The maximum number of bytes that are kept from the end of each output stream.
        merge_stderr: Whether to merge standard error into standard output, in the order written.
        time_limit_s: The process group is killed after this many seconds; 0 means no limit. The result contains
            the earlier output.
    """

    argv: tuple[str, ...]
    search_path: str = ""
    env: Mapping[str, str] = {}
    cwd: str = "/"
    stdin: bytes | None = None
    output_limit_bytes: int = 1 << 20
    merge_stderr: bool = False
    time_limit_s: float = 0.0


class Completed(Struct, frozen=True, kw_only=True):
    """
    The result of a program.

    Attributes:
        code: Exit code; -N if signal N killed it.
        stdout: The last `output_limit_bytes` of standard output.
        stderr: The last `output_limit_bytes` of standard error.
        dropped_bytes: Number of dropped bytes of both streams.
        timed_out: Whether the program was killed after its time limit.
    """

    code: int
    stdout: bytes = b""
    stderr: bytes = b""
    dropped_bytes: int = 0
    timed_out: bool = False


class Runner(Protocol):
    """Runs programs off the event loop, each in its own session (process group) and without a terminal."""

    async def run(self, command: Command, on_line: Callable[[str], None] | None = None) -> Completed:
        """
        Run a program to its end.

        Returns when the program itself has ended. A child process that keeps the output open does not delay the
        return. On cancellation (for example by `asyncio.timeout`), the whole process group is terminated, first
        with SIGTERM, and reaped.

        Args:
            command: The program to run.
            on_line: Called on the event loop with each line of standard output as it arrives, without the newline.

        Raises:
            CommandError: The program could not be started.
        """
        ...


SMALL_BYTES = 1 << 20
"""A file of at most this size is always read for its digest. Files in /proc and /sys do not report their size."""
DIGEST_BYTES = 64 << 20
"""A larger file is read for its digest only if the caller permits that size."""


DigestLimits = Mapping[str, Sequence[int | str]]
"""The maximum size of a file to read, by path: a number of bytes, or the path of a file with that size."""


class FileInfo(Struct, frozen=True, kw_only=True):
    """
    The state of a path.

    Attributes:
        path: The path that was inspected.
        kind: "absent", "file", "directory", "symlink" or "other" (FIFO, socket, device); "unreadable" if the inspection failed.
        error: Why the path is unreadable; "" otherwise.
        mode: Permission bits with setuid, setgid and sticky; 0 when absent.
        uid, gid: Numeric owner; -1 when absent.
        owner, group: Names, or the numbers as text if the system has no name for them.
        size_bytes: Size of the content.
        mtime_ns: Modification time.
        sha256: Hex digest of a regular file's content if requested, otherwise "".
        undigested: Why a requested digest of a regular file is missing: the file is too large, or mostly sparse.
        link: The target of a symlink at the end of the path; "" if there is none. If the symlink was followed,
            the other attributes describe its target. `kind` is "absent" if the target is missing.
        is_empty: Whether a directory is empty.
    """

    path: str
    kind: str = "absent"
    error: str = ""
    mode: int = 0
    uid: int = -1
    gid: int = -1
    owner: str = ""
    group: str = ""
    size_bytes: int = 0
    mtime_ns: int = 0
    sha256: str = ""
    undigested: str = ""
    link: str = ""
    is_empty: bool = False


class ContentRef(Struct, frozen=True):
    """A reference to the content of another regular file, which may be too large for memory."""

    path: str


class Files(Protocol):
    """
    Reads and changes files; each call is one thread hop.

    Paths are absolute. A change never follows a symlink at the end of a path. It also does not follow earlier
    symlinks in the path that another user could have created. Owner and group are names, or numbers as text; ""
    means the user who runs this process. A change that has begun is completed before a cancellation takes effect.
    """

    async def inspect(
        self, paths: Sequence[str], *, digest: bool | DigestLimits = True, follow: bool = True
    ) -> list[FileInfo]:
        """
        Read the state of each path, in order. Never raises for a single path.

        Args:
            paths: The paths.
            digest: Whether to compute digests of files of at most DIGEST_BYTES, or the maximum size of the file
                by path. A file that is larger than the desired content need not be read to detect the
                difference. (Any user can create a sparse file of terabytes.) The limit is at least SMALL_BYTES.
                Files without an entry in the mapping are not read.
            follow: Whether to follow a symlink at the end of the path.
        """
        ...

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """Return the content of a regular file. A FIFO, a socket, a device or a file above the limit is an error."""
        ...

    async def write(
        self,
        path: str,
        content: bytes | ContentRef,
        *,
        owner: str = "",
        group: str = "",
        mode: int,
        then_inspect: DigestLimits | None = None,
    ) -> list[FileInfo]:
        """
        Write a file atomically; return its state afterwards, as `inspect` does.

        Owner and group are resolved before anything is written. Then a temporary file next to the target is
        written with the content, owner and mode, is synced and renamed, and the directory is synced. SELinux
        label, ACL and extended attributes of the replaced file are kept.

        Args:
            content: The bytes, or a regular file to copy.
            then_inspect: The paths to inspect in the same thread hop, with the size limits for their digests.
        """
        ...

    async def replace(self, staged: str, path: str, *, owner: str = "", group: str = "", mode: int) -> None:
        """
        Replace a file with a file that is already written, without copying it. See `write` for the other effects.

        Args:
            staged: A regular file in the directory of `path`; it is moved.
        """
        ...

    async def set_attributes(
        self, path: str, *, owner: str = "", group: str = "", mode: int, directory: bool = False
    ) -> None:
        """
        Set owner, group and mode, never through a symlink.

        Args:
            directory: Whether to create a missing directory first, and its parents with the same mode. A
                symlink that does not point to a directory is replaced.
        """
        ...

    async def link(
        self, path: str, target: str, *, owner: str = "", group: str = "", force: bool = False
    ) -> None:
        """
        Create or replace a symlink atomically.

        Owner and group of the symlink itself are resolved before anything is written. Then a temporary symlink
        in the same directory is created with the owner and is renamed, and the directory is synced. The earlier
        target and the new target are not changed.

        Args:
            target: The text of the symlink.
            force: Whether to replace a file or an empty directory as well.

        Raises:
            FileError: The path is of another kind; `errno.ENOTEMPTY` for a directory that is not empty.
        """
        ...

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """
        Remove a file, symlink or empty directory; a missing path is not an error.

        Args:
            recursive: Whether to remove a directory with its content. Symlinks are never followed.

        Raises:
            FileError: The path cannot be removed; `errno.ENOTEMPTY` for a directory that is not empty.
        """
        ...

    async def ids(self, owner: str, group: str) -> tuple[int, int]:
        """
        Resolve owner and group to numbers, -1 for "". Raises FileError for an unknown name or a number out
        of range.
        """
        ...


class KeyPlace(Struct, frozen=True, kw_only=True):
    """
    The home directory of a user, for SSH keys.

    Attributes:
        path: Absolute path.
        uid, gid: The numbers of the user and of the primary group.
    """

    path: str
    uid: int
    gid: int


class KeyFile(Struct, frozen=True, kw_only=True):
    """
    The file ~/.ssh/authorized_keys of a user.

    Attributes:
        content: The bytes of the file; None if it does not exist.
        fault: The problem with owners and modes; "" if the user owns directory and file, with modes 0700 and 0600.
        error: Why the file cannot be managed, for example because a symlink is in its place; "" if it can.
    """

    content: bytes | None = None
    fault: str = ""
    error: str = ""


class KeyFiles(Protocol):
    """
    Reads and writes ~/.ssh/authorized_keys; each call is one thread hop.

    The user controls everything in the home directory. Symlinks in it are therefore not followed, files that
    the user cannot read are not read, and a home directory of another user is refused.
    """

    async def look(self, homes: Sequence[KeyPlace]) -> list[KeyFile]:
        """Read the file in each home directory, in order. Never raises for a single directory."""
        ...

    async def write(self, home: KeyPlace, content: bytes | None) -> None:
        """
        Write the file atomically, and set owners and modes of the file and of ~/.ssh. A missing ~/.ssh is created.

        Args:
            home: The user's home directory.
            content: The file's content; None removes the file.

        Raises:
            FileError: The operating system refuses, or a path has the wrong type; the file is unchanged.
        """
        ...


class Transfer(Struct, frozen=True, kw_only=True):
    """
    A URL to download.

    Attributes:
        url: http or https. User name and password in it are used for authentication, and never shown.
        headers: Sent only to the URL's own host, not after a redirect to another host. They override user name and password.
        username, password: Basic authentication for the URL itself. They are not sent after a redirect, even on
            the same host.
        etag, last_modified: Values from an earlier response. The server can then answer that nothing has changed.
        limit_bytes: The maximum size of the response. A larger response is an error.
    """

    url: str
    headers: Mapping[str, str | Secret] = {}
    username: str = ""
    password: Secret | None = None
    etag: str = ""
    last_modified: str = ""
    limit_bytes: int = 1 << 30


class Transferred(Struct, frozen=True, kw_only=True):
    """
    The result of a download.

    Attributes:
        is_unchanged: Whether the content still matches `etag` or `last_modified`. If so, nothing was transferred.
        content: The bytes; b"" if they were saved to a file.
        size_bytes, sha256: Size and SHA-256 (hex) of the content.
        etag, last_modified: Values for the next request; "" if the server did not send them.
    """

    is_unchanged: bool = False
    content: bytes = b""
    size_bytes: int = 0
    sha256: str = ""
    etag: str = ""
    last_modified: str = ""


class Download(Protocol):
    """
    Downloads URLs. Follows at most ten redirects, only to http and https and never from https to http. Only a response with
    status 200 has content.

    Raises DownloadError, which shows the URL without secrets.
    """

    async def fetch(self, transfer: Transfer) -> Transferred:
        """Download into memory."""
        ...

    async def save(
        self, transfer: Transfer, path: str, on_progress: Callable[[int, int], None] | None = None
    ) -> Transferred:
        """
        Download into a file.

        An interrupted transfer is resumed if the server supports this. Otherwise it starts again. If the download
        fails or is cancelled, the file is removed.

        Args:
            path: A new file, readable only by its owner; an existing path is an error.
            on_progress: Called on the event loop with the received bytes and the total, which is 0 while unknown.
        """
        ...


class Packed(Struct, frozen=True, kw_only=True):
    """
    An archive file to unpack.

    Attributes:
        path: The archive, a regular file.
        kind: "tar.gz", "tar" (compressed or not, detected from its content) or "zip".
        limit_entries, limit_bytes: Limits. An archive that exceeds a limit is refused before anything is
            written. If `limit_bytes` is 0, the limit is derived from the size of the archive.
        proof: A path in the archive. Its existence proves that everything was unpacked; "" for none. A missing
            path is written last, and not at all if unpacking fails.
        sha256: Digest of the archive's content, in hex; "" if unknown. It is compared with the bytes that are
            unpacked, so a concurrent change of the file is detected.
        size_bytes: Size of the archive; -1 if unknown. An archive of another size is not read.
        drop_special_bits: Whether setuid, setgid and sticky bits are dropped.
    """

    path: str
    kind: str
    proof: str = ""
    sha256: str = ""
    size_bytes: int = -1
    drop_special_bits: bool = False
    limit_entries: int = 500_000
    limit_bytes: int = 0


class Unpack(Protocol):
    """Unpacks untrusted archives."""

    async def unpack(self, packed: Packed, into: str) -> int:
        """
        Unpack into a directory, which is created (0755) with its parents. Returns the number of entries.

        The whole archive is read and checked first, so a damaged, oversized or malicious archive changes
        nothing. Absolute names, `..`, devices, and links that point outside the directory are refused. Symlinks
        that point outside the directory are not followed while writing. Each file is replaced atomically; files
        that are not in the archive are kept. Modes and times come from the archive, and owners too if root
        unpacks a tar.

        Raises:
            FileError: The archive was refused or could not be written; the message contains the entry and the problem.
        """
        ...


class TreeEntry(Struct, frozen=True, kw_only=True):
    """
    One entry below a directory.

    Attributes:
        path: Relative to the directory, with `/` between the parts; bytes that are not UTF-8 are surrogate escapes.
        kind: "file", "directory", "symlink" or "other" (FIFO, socket, device).
        content: The content of a file, or of a symlink to a file; b"" otherwise.
        mode: Permission bits; 0 for a symlink.
        uid, gid: Numeric owner; -1 uses the writer's own ids.
    """

    path: str
    kind: str = "file"
    content: bytes = b""
    mode: int = 0o644
    uid: int = -1
    gid: int = -1


class Tree(Struct, frozen=True, kw_only=True):
    """
    A directory with all its content.

    Attributes:
        kind: The kind of the path: "directory", or "file", "symlink" or "other" without entries.
        entries: The entries in walk order: sorted by name, a directory before its content. Symlinks are not entered.
    """

    kind: str
    entries: tuple[TreeEntry, ...] = ()


class Digest(Struct, frozen=True):
    """
    Digest and size of content that is not in memory.

    Attributes:
        sha256: In hex; "" if unknown, so any existing file differs.
        size_bytes: Size of the content; -1 if unknown. A file of another size is not read.
    """

    sha256: str = ""
    size_bytes: int = -1


class TreeComparison(Struct, frozen=True, kw_only=True):
    """
    The differences between a directory and its wanted files.

    Attributes:
        exists: Whether the path is a directory, or a symlink to one.
        files: "same", "differs" or "absent" for each wanted path.
        extra: Paths of all other entries except directories, sorted; "" is the path itself if it is a symlink
            that was not followed. For a huge directory without `is_whole` the list is incomplete.
    """

    exists: bool
    files: Mapping[str, str]
    extra: tuple[str, ...] = ()


class Trees(Protocol):
    """
    Reads and writes whole directories; each call is one thread hop, regardless of the number of files.

    Paths of directories are absolute; paths inside them are relative. As with `Files`, no change follows a
    symlink that another user could have created. Other symlinks to directories are followed, unless `is_whole`
    is set.

    `is_whole` means that the directory must contain only the wanted files. Symlinks below it are then not
    followed either, because a symlink in place of a directory is itself an unwanted entry.
    """

    async def read(self, path: str, limit_bytes: int) -> Tree:
        """
        Read the whole content of a directory.

        Raises:
            FileError: It does not exist, an entry cannot be read, or there are too many entries.
        """
        ...

    async def compare(
        self, path: str, wanted: Mapping[str, bytes | Digest], *, is_whole: bool = False
    ) -> TreeComparison:
        """
        Compare the wanted files with a directory, following symlinks to files.

        Args:
            path: The directory, which may be missing.
            wanted: The content of each path, or its digest.
            is_whole: See the class.

        Raises:
            FileError: An entry of another kind is in the place of a file or directory, or cannot be read.
        """
        ...

    async def write(
        self,
        path: str,
        directories: Sequence[str],
        files: Sequence[TreeEntry],
        *,
        keep: Collection[str] | None = None,
    ) -> tuple[str, ...]:
        """
        Create directories and write files, each atomically. New directories have mode 0755, and existing
        directories keep their mode.

        Args:
            path: The directory, which is created with its parents.
            directories: The directories to create below it, parents first.
            files: Regular files; their directories exist or are in `directories`.
            keep: Paths to keep. If given, everything else below the path on its file system is removed at the
                end, except directories and the written files. None removes nothing.

        Returns:
            The removed paths.
        """
        ...

    async def remove(self, path: str, files: Sequence[str]) -> None:
        """
        Remove files, then directories that became empty, then the directory itself if it is empty.

        Missing paths and directories with other content are not errors.

        Raises:
            FileError: A file could not be removed; the other files were removed.
        """
        ...


class TreeSpec(Struct, frozen=True, kw_only=True):
    """
    The desired state of a directory and its content.

    Attributes:
        path: The directory, absolute.
        is_absent: Whether the directory should not exist. If so, the other attributes do not apply.
        source: The absolute path of a directory with the desired files and subdirectories; "" for none.
        purge: Whether to remove entries that the source does not have.
        recurse: Whether owner, group and modes apply to everything in the directory. Otherwise they apply only
            to the directory and the entries of the source.
        owner, group: Names, or numbers as text; "" leaves them unchanged.
        file_mode, directory_mode: Permissions; -1 leaves them unchanged.
        max_age_s: Files older than this are removed; -1 means no limit.
        max_size_bytes: The oldest files are removed until the total size is at most this; -1 means no limit.
        matches: Patterns of the files to which the limits apply; empty for all files. The boolean is true if
            the pattern matches the path instead of the name.
        now_s: The time from which the age of files is computed, in seconds since the epoch.
        refused: Directories that must not be the target, also if another path leads to them.
    """

    path: str
    is_absent: bool = False
    source: str = ""
    purge: bool = False
    recurse: bool = False
    owner: str = ""
    group: str = ""
    file_mode: int = -1
    directory_mode: int = -1
    max_age_s: float = -1.0
    max_size_bytes: int = -1
    matches: tuple[tuple[re.Pattern[str], bool], ...] = ()
    now_s: float = 0.0
    refused: tuple[str, ...] = ()


class TreeChange(Struct, frozen=True, kw_only=True):
    """
    One entry of a directory that must change.

    Attributes:
        path: Relative to the directory; "" is the directory itself. Bytes that are not UTF-8 are surrogate escapes.
        action: "create", "write" (the content differs), "set" (owner, group or mode differ) or "remove".
        kind: The kind of the entry: "file", "directory" or "symlink". Replacing a symlink with a file is a "write".
        why: Why the entry is removed: "absent", "purge", "age" or "size"; "" otherwise.
        link: Target of a symlink.
        mode, uid, gid: Values before the change; -1 if the entry does not exist. `new_mode`, `new_uid`,
            `new_gid`: values after the change; -1 for the writer's own ids.
        size_bytes, mtime_ns, device, inode: Used before a removal to check that it is still the same entry.
    """

    path: str
    action: str
    kind: str
    why: str = ""
    link: str = ""
    mode: int = -1
    uid: int = -1
    gid: int = -1
    new_mode: int = -1
    new_uid: int = -1
    new_gid: int = -1
    size_bytes: int = 0
    mtime_ns: int = 0
    device: int = 0
    inode: int = 0


class TreeDifference(Struct, frozen=True, kw_only=True):
    """
    The differences between a directory and its spec.

    Attributes:
        kind: "directory", "absent", or the kind of another entry at the path.
        error: Why the directory cannot be created to match its spec; "" if it can. With an error, the other
            attributes are not set.
        mode, uid, gid: Values of the directory; -1 if it does not exist.
        owner, group: Names, or the numbers as text.
        count: Number of entries that were compared.
        changes: The necessary changes, in order: directories before their content, then removals, content before directories.
        kept: Mount points, FIFOs, sockets and devices, which are never purged or removed.
    """

    kind: str = "absent"
    error: str = ""
    mode: int = -1
    uid: int = -1
    gid: int = -1
    owner: str = ""
    group: str = ""
    count: int = 0
    changes: tuple[TreeChange, ...] = ()
    kept: tuple[str, ...] = ()


class TreeEditor(Protocol):
    """
    Compares directories with their specs, and makes the changes.

    No symlink below the directory or the source is followed, and neither the directory nor the source may be a
    symlink. File systems that are mounted below the directory are not entered. Symlinks in the path to the
    directory are followed only if no other user could have created them.
    """

    async def look(self, specs: Sequence[TreeSpec]) -> list[TreeDifference]:
        """Compare each directory with its spec, in one thread hop. Never raises for a single spec."""
        ...

    async def sync(self, spec: TreeSpec, look: TreeDifference) -> None:
        """
        Make the changes that `look` found, in their order; each file is written atomically.

        An entry that was replaced or changed since then is not removed.

        Raises:
            FileError: A change failed. The earlier changes were made.
        """
        ...


class Records(Protocol):
    """
    Small documents by key, stored on this host, with data that a later run needs and cannot observe on the host.

    Only the current user can read them. A document may be lost. In that case, work is repeated.
    """

    async def recall(self, kind: str, key: str) -> bytes | None:
        """Return the document of a key; None if there is none."""
        ...

    async def keep(self, kind: str, key: str, document: bytes | None) -> None:
        """
        Store a document under its key; None removes the stored document.

        Args:
            kind: The kind of document, `[a-z][a-z0-9_-]*`.
            key: Any text.
            document: Its bytes.
        """
        ...


class Locks(Protocol):
    """Locks that are shared by the processes of this host, by name: "accounts", "package", "service"."""

    def hold(self, name: str) -> AbstractAsyncContextManager[None]:
        """
        Wait for the current holder of a lock, and hold the lock during an `async with`.

        Raises:
            LockError: The lock was not released within the adapter's limit; the message contains the holder.
        """
        ...


class KernelValue(Struct, frozen=True, kw_only=True):
    """
    A parameter of the running kernel.

    Attributes:
        path: Its path below /proc/sys.
        value: Its value, without the newline at the end; "" if it is empty or cannot be read.
        exists: Whether the kernel has the parameter.
        is_read_only: Whether the file system of the parameter is mounted read-only.
        error: Why the parameter cannot be read; "" if it can be read or does not exist.
    """

    path: str
    value: str = ""
    exists: bool = False
    is_read_only: bool = False
    error: str = ""


class Kernel(Protocol):
    """Parameters of the running kernel, by their absolute paths below /proc/sys."""

    async def read(self, paths: Sequence[str]) -> list[KernelValue]:
        """Read parameters, in order, in one thread hop. Never raises for a single parameter."""
        ...

    async def set(self, path: str, value: str) -> None:
        """
        Set a parameter.

        Raises:
            FileError: The kernel refused the value.
        """
        ...


class Clock(Protocol):
    """The time. Tests can control it."""

    def now(self) -> datetime:
        """Return the wall-clock time, timezone-aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes backwards."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after this many seconds of `monotonic`."""
        ...


class KeyValueEntry(Struct, frozen=True, kw_only=True, gc=False):
    """
    One revision of a key.

    Attributes:
        key: The key.
        value: Its bytes; never empty, because an empty value means an absent key.
        revision: The stream sequence of this write.
        created: When it was written, by the broker's clock.
        signature: The `Ccm-Signature` header of the write; "" without one.
        certificate: The `Ccm-Certificate` header of the write; "" without one.
        note: For a deletion, the note that was passed to `delete`: who removed the key and why; "" if there is none.
        copied_from: For an entry that this broker copied from that of a site: the broker's name for it. `created` is then when it
            was copied. "" for all others.
    """

    key: str
    value: bytes
    revision: int
    created: datetime
    signature: str = ""
    certificate: str = ""
    note: str = ""
    copied_from: str = ""


class KeyReader(Protocol):
    """Reads one bucket, without creating a consumer on the broker."""

    async def get(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        """
        Return the newest revision of a key; None if it is absent, deleted, expired or empty.

        Args:
            key: The key.
            at_least: A revision that is known to be stored, from a notice. A replica that has not stored it yet
                is queried again for a few seconds.

        Raises:
            BusUnavailableError: The broker is unreachable, or no replica has that revision.
            ProtocolError: The entry was not written by a client but copied there by a redirected read. Keep the last value.
        """
        ...

    async def newest(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        """
        Return the newest revision of a key, or its deletion (with an empty value); None if nothing is
        stored. See `get`.
        """
        ...

    async def as_of(self, key: str, revision: int) -> KeyValueEntry | None:
        """
        Return a key as of a revision of the bucket; None if it was absent at that revision.

        Entries that were copied there by a redirected read are skipped.

        Args:
            key: The key.
            revision: A revision of the bucket, of any key, that is known to be stored.

        Raises:
            RevisionGoneError: Only newer revisions of the key are stored.
            BusUnavailableError: The broker is unreachable, or no replica has that revision.
        """
        ...

    async def matching(
        self,
        patterns: Sequence[str],
        *,
        obeyed: bool = False,
        at_least: int = 0,
        deletions: bool = False,
    ) -> list[KeyValueEntry]:
        """
        Return the newest revisions of all keys that match one of the patterns, sorted by key.

        Args:
            patterns: Keys in which `*` matches one token and `>` the rest: `["all.*", "node.web1.*"]`.
            obeyed: Whether the reader acts on the entries. If so, an entry that a redirected read copied there
                is an error. It is not skipped, because a node could otherwise hide the real entry.
            at_least: A revision of a matching key, or of a deletion, that is known to be stored; see `get`.
            deletions: Whether to include deleted keys, each with an empty value.

        Raises:
            BusUnavailableError: The broker is unreachable, or no replica has that revision.
            ProtocolError: With `obeyed`: an entry was not written by a client but copied. Keep the last values.
        """
        ...

    async def watch_changes(
        self, pattern: str, on_change: Callable[[str, int], None]
    ) -> Callable[[], Awaitable[None]]:
        """
        Call a function with key and revision after each write to a matching key, until the returned function is
        called.

        Notices are lost while the connection is down, so a reader must also read again after each reconnect and
        at intervals. The buckets that nodes write (CCM_NODES) and the records of runs send no notices.
        """
        ...


class KeyValue(KeyReader, Protocol):
    """One bucket."""

    async def put(self, key: str, value: bytes, *, ttl_s: int | None = None) -> int:
        """Write a key and return its revision; with `ttl_s`, the broker removes it after this many seconds."""
        ...

    async def update(self, key: str, value: bytes, revision: int, *, ttl_s: int | None = None) -> int:
        """Like `put`, but raise RevisionError unless the newest revision is `revision` (0: the key must be absent)."""
        ...

    async def delete(self, key: str, *, number: int = 0, note: str = "") -> None:
        """
        Make a key absent. Older revisions stay in its history.

        Args:
            key: The key.
            number: The number of the deletion, for a document that agents follow. It is higher than the
                document's number.
            note: Text for the history; agents ignore it.
        """
        ...


class KeyHistory(Protocol):
    """
    Reads of a bucket that only the controller performs, because there may be many keys. They do not create consumers.
    """

    async def keys(self, prefix: str = "") -> list[str]:
        """Return the existing keys that begin with a prefix, sorted."""
        ...

    async def entries(self, prefix: str = "") -> list[KeyValueEntry]:
        """Return the newest revisions of the keys that begin with a prefix, sorted by key."""
        ...

    async def history(self, key: str) -> list[KeyValueEntry]:
        """Return all stored revisions of a key, oldest first; a deletion is an entry with an empty value."""
        ...

    async def revision(self) -> int:
        """Return the revision of the newest write to the bucket, including removals; 0 if nothing was ever written."""
        ...

    async def now(self) -> datetime:
        """Return the time of the broker's clock."""
        ...


class BucketKeys(Struct, frozen=True, kw_only=True):
    """
    The keys of a bucket, without their values.

    Attributes:
        keys: All keys that have a stored entry, including a deletion.
        created: When the stream was created, in the broker's format. The time changes if the stream is deleted
            and created again.
        revision: Revision of the newest write to the bucket.
        history: The number of revisions that the bucket keeps for each key.
    """

    keys: set[str]
    created: str
    revision: int
    history: int


class KeyChanges(KeyReader, Protocol):
    """Reads the changes of a bucket, for a reader that already has its earlier content."""

    async def list_keys(self, pattern: str) -> BucketKeys:
        """
        List the existing keys that match a pattern, from the leader of the stream.

        Raises:
            BusUnavailableError: The broker is unreachable.
            BusDeniedError: The credentials lack this permission.
        """
        ...

    async def changes(self, pattern: str, after: int, since: datetime) -> list[KeyValueEntry]:
        """
        Return the revisions of matching keys that were stored after a revision, oldest first. Deletions have an empty value.

        An entry that was copied by a redirected read is returned as a deletion, because `matching` does not
        return it. If the first revision that was written at `since` or later has a number of at most `after`,
        the result begins with that revision. This happens if a stream was restored from a backup and written to
        again: times increase, but revisions continue from a lower number.

        Raises:
            BusUnavailableError: The broker is unreachable.
        """
        ...


class SignedStore(KeyValue, Protocol):
    """A bucket that also stores existing signatures; "" for none."""

    async def update(
        self, key: str, value: bytes, revision: int, *, ttl_s: int | None = None, signature: str = ""
    ) -> int:
        """See `KeyValue.update`."""
        ...

    async def delete(self, key: str, *, number: int = 0, note: str = "", signature: str = "") -> None:
        """See `KeyValue.delete`."""
        ...

    async def store_signed(self, key: str, value: bytes, revision: int, signature: str) -> int:
        """
        Write a key like `update`, with an existing signature.

        Args:
            key: The key.
            value: Its bytes.
            revision: The newest revision of the key, which may be a deletion; 0 if nothing was ever stored there.
            signature: The `Ccm-Signature` header; "" for none.
        """
        ...


class StoredObject(Struct, frozen=True, kw_only=True):
    """
    An object of an object store, without its bytes.

    Attributes:
        name: Its name; for a bundle, the digest.
        digest: SHA-256 (hex) of its bytes, from its description; "" if the description cannot be read.
        size_bytes: Its size, from its description.
        time: When the object was last stored, including writes of the same content.
        revision: The stream sequence of its description.
    """

    name: str
    digest: str
    size_bytes: int
    time: datetime
    revision: int = 0


class Objects(Protocol):
    """Bundles by digest. Reading a bundle does not create a consumer on the broker."""

    async def all(self) -> list[StoredObject]:
        """Return every object, oldest first. Only the controller calls this, because there may be many."""
        ...

    async def get(self, name: str, limit_bytes: int) -> bytes:
        """Return an object's bytes; raises NotFoundError, or ProtocolError if its size or digest is wrong."""
        ...

    async def put(self, name: str, content: bytes) -> None:
        """
        Store an object. If the same name and content are already stored, only the object's time is renewed.

        A concurrent `remove` then keeps the object, because its revision is newer. Raises ProtocolError if
        the name is a digest of other content.
        """
        ...

    async def remove(self, name: str, revision: int) -> bool:
        """
        Remove an object unless it was stored again since it was listed.

        Args:
            name: Its name.
            revision: The revision that `all` returned.

        Returns:
            Whether it was removed.

        Raises:
            BusDeniedError: The credentials are not those of an operator with `--admin`.
        """
        ...

    async def trim(self) -> None:
        """
        Remove the older descriptions that `put` leaves when it renews the time of an object.

        Raises:
            BusDeniedError: The credentials are not those of an operator with `--admin`.
        """
        ...

    async def digest(self, name: str, at_least: int = 0) -> str | None:
        """
        Return the SHA-256 (hex) of an object at this revision or later; None if it does not exist. The call is cheap.
        """
        ...

    async def signature(self, name: str) -> tuple[str, str]:
        """
        Return the subject of an object's meta message, and its signature; "" if it was not signed.

        The signature covers the object's digest (SHA-256, hex) and that subject.
        """
        ...

    async def watch_changes(
        self, name: str, on_change: Callable[[int], None]
    ) -> Callable[[], Awaitable[None]]:
        """
        Call a function with the revision after each change of the object, until the returned function is
        called.
        """
        ...


class IncomingRequest(Struct, frozen=True, kw_only=True):
    """
    A request as received.

    Attributes:
        subject: The subject on which it was delivered.
        protocol: The protocol id at the start of the subject. Requests with a different id in the body were refused.
        scope: The subject's scope as text: "all", "node.<node>" or "fact.<key>.<value>" (encoded).
        body: The exact bytes.
        headers: Headers; names as sent.
        scheduled: Whether the request came from the stream of schedules. Its run ID and time derive from `headers`.
    """

    subject: str
    protocol: str
    scope: str
    body: bytes
    headers: Mapping[str, str] = {}
    scheduled: bool = False


class Requests(Protocol):
    """Requests to this agent. The agent subscribes by scope."""

    async def subscribe(
        self,
        scopes: Sequence[str],
        on_request: Callable[[IncomingRequest], None],
        on_refused: Callable[[str, ProtocolError], None] | None = None,
    ) -> None:
        """
        Replace the scopes of this process; unchanged subscriptions do not miss messages.

        Args:
            scopes: Scopes as text.
            on_request: Called on the event loop, so it must only queue. It does not receive messages that
                violate the protocol.
            on_refused: Called for refused messages, with the subject and the reason; each refusal is also logged.

        Raises:
            BusDeniedError: The broker refused a subscription. The other subscriptions are active.
        """
        ...

    async def last_due(self, subject: str) -> IncomingRequest | None:
        """
        Return the most recently due request of a schedule's subject, as delivered; None if there is none.

        Raises:
            BusError: The broker is unreachable, does not support schedules, or refuses.
            ProtocolError: The message violates the protocol.
        """
        ...

    async def own_subjects(self, scopes: Collection[str]) -> list[str]:
        """
        Return the separate subjects of the schedules in these scopes, for use with `last_due`.

        Raises:
            BusError, ProtocolError: See `last_due`.
        """
        ...


class Published(Struct, frozen=True, kw_only=True):
    """
    The acknowledgment of a published event.

    Attributes:
        sequence: The event's sequence in the stream.
        is_duplicate: Whether the stream already had a message with this message id, and did not store this one.
    """

    sequence: int
    is_duplicate: bool = False


class StoredEvent(Struct, frozen=True, kw_only=True):
    """
    A stored or delivered event.

    Attributes:
        subject: Its subject; protocol, run and node are read from it, never from the body.
        body: Its bytes.
        sequence: Its sequence in the stream; 0 for core delivery.
        chain: The `Ccm-Chain` header: the event's position in its node's chain, as claimed by the sender; "" without one.
        signature: The `Ccm-Signature` header, not verified; "" without one.
        time: When it was stored, by the broker's clock; None for core delivery.
    """

    subject: str
    body: bytes
    sequence: int = 0
    chain: str = ""
    signature: str = ""
    time: datetime | None = None


class BrokerConnection(Protocol):
    """
    The connection behind the bus ports. It may be lost and restored. Callers that can work without a connection
    do not wait for it.
    """

    @property
    def connected(self) -> bool:
        """Whether the broker is connected and all subscriptions are active."""
        ...

    @property
    def since(self) -> float:
        """Return the time of the last change of `connected`, by the monotonic clock."""
        ...

    async def wait_connected(self) -> None:
        """Wait until the broker is connected, without a time limit."""
        ...

    def on_connect(self, hook: Callable[[], None]) -> Callable[[], None]:
        """
        Call a function after each connect, once subscriptions are restored. The function must only queue.

        Use it to re-read data that may have changed while disconnected. The returned function removes the hook.
        """
        ...


class Events(Protocol):
    """State events. Agents publish them, and operators read them."""

    async def publish(
        self, subject: str, message_id: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> Published:
        """
        Publish and wait for the stream's acknowledgement. After any BusError, retry with the same message ID.

        The stream stores one message for each id, regardless of sender and subject. An id must therefore be
        unguessable: 128 random bits.
        """
        ...

    async def announce(self, subject: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """
        Publish a message that no stream stores (answers, progress). It is sent once, may be lost, and never
        raises while connected.
        """
        ...

    async def follow(
        self, subject: str, on_event: Callable[[StoredEvent], None]
    ) -> Callable[[], Awaitable[None]]:
        """
        Deliver messages of a subject pattern (core NATS) until the returned function is called; copied
        messages are dropped.
        """
        ...

    async def read(self, subject: str, from_sequence: int = 1) -> list[StoredEvent]:
        """Read the stream's events on a subject pattern, oldest first, by direct get."""
        ...

    def scan(self, subject: str, since: datetime | None = None) -> AsyncIterator[StoredEvent]:
        """
        Read the stream's events on a subject pattern, page by page, for readers that do not need all events in
        memory.

        Args:
            subject: The pattern.
            since: Skip events stored before this time.
        """
        ...

    async def oldest(self) -> datetime | None:
        """Return the time at which the oldest event in the stream was stored; None if the stream is empty."""
        ...

    async def newest(self, patterns: Sequence[str]) -> list[StoredEvent]:
        """Return the newest event on each subject that matches a pattern, in storage order, by direct get."""
        ...


class RenderWorker(Protocol):
    """
    A process that renders templates, with kernel limits on CPU time and memory. Its methods block; call
    them in any thread.
    """

    def call(self, request: bytes, hear: Callable[[bytes], bytes | None]) -> None:
        """
        Send a job to the process, and handle its messages.

        Args:
            request: The job.
            hear: Called with each message. It returns an answer to send, None to continue, or b"" after the last message.

        Raises:
            TemplateLimitError: The process exceeded its time or memory limit and was killed.
            TemplateError: The process could not be started, or ended unexpectedly.
        """
        ...

    def close(self) -> None:
        """End the process. A later call starts a new one."""
        ...

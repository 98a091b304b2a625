"""The file of the embedded store: a snapshot of the tree, then every later transaction.

Invariant: transactions are on the device when `append` returns, and are replayed when the file is
opened. A group of transactions is one frame with one checksum, written after the previous frame is
on the device. A clean close writes an empty frame, the end mark. So only the last frame can be
torn, and not after a clean close; it is truncated, because it was never acknowledged. Other bad
frames at the end are damage: they are truncated after the file was copied. A bad frame before a
good one is refused, and the file is left unchanged. docs/formats/coordination-journal.md explains
the bytes.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple, Self

from fastcrc.crc32 import iscsi as crc32c

from ottla.coordination.errors import NodeError, StoreRefused
from ottla.coordination.tree import Kept, Made, NodeChange, Removed, Replaced, Transaction, Tree
from ottla.errors import StorageExhausted, StorageFailure
from ottla.log.disk import Disk, File, read_whole, staged, write_atomically
from ottla.log.names import DAMAGED_SUFFIX
from ottla.log.set_aside import copy_aside

HEAD: Final = b"ottlaco\x01"  # magic and format version
FRAME: Final = b"\xc7txn"  # its first byte cannot precede the others in UTF-8 text

REWRITE_BYTES_MIN: Final = 256 << 10
REWRITE_FACTOR: Final = 2  # rewrite the file when it exceeds the tree's size this many times

_FRAME_HEAD: Final = Struct(">4sII")  # FRAME, body length in bytes, CRC32C of the body
_TRANSACTION: Final = Struct(">qI")  # zxid, number of changes
_KIND: Final = Struct(">BI")  # kind, length of the path in bytes
_SIZE: Final = Struct(">I")
_OWNER: Final = Struct(">q")
_STAT: Final = Struct(">qqqqq")  # version, czxid, mzxid, owner, creations

END_MARK: Final = _FRAME_HEAD.pack(FRAME, 0, crc32c(b""))  # a frame without transactions

_KEPT: Final = 0
_MADE: Final = 1
_REPLACED: Final = 2
_REMOVED: Final = 3


class Repair(NamedTuple):
    """What was truncated when a file was opened."""

    problem: str
    size: int  # of the truncated bytes
    missing: str  # what the store may have lost; empty if nothing
    copy: str = ""  # the path of a copy of the file as it was; empty if nothing is missing


class Journal:
    """An open journal file. Every method blocks on the disk."""

    def __init__(self, disk: Disk, path: str, file: File, size: int) -> None:
        self.repair: Repair | None = None
        self._disk = disk
        self._path = path
        self._file = file
        self._size = size
        self._tree_size = size  # file size after the last rewrite

    @classmethod
    def open(cls, disk: Disk, path: str) -> tuple[Self, Tree]:
        """Open the file, or create it if it is missing; return it with its tree."""
        if not disk.exists(path):
            write_atomically(disk, path, whole_file(Tree()), private=True)
        data = read_whole(disk, path)
        tree = Tree()
        try:
            end = _replay(data, tree)
            repair = _repair(data, end) if end < len(data) else None
        except CorruptJournal as error:
            raise StoreRefused(
                f"{path} is damaged: {error}. It was not changed. Restore a backup of it. Without "
                "a backup, move it away and run `ottla log adopt` on the data directories: this "
                "keeps records and committed offsets, but not the settings of topics"
            ) from error
        file = disk.open(path, private=True)
        journal = cls(disk, path, file, end)
        journal._tree_size = whole_file_size(tree)  # many short runs must not grow it for ever
        if repair is not None:
            if repair.missing:
                copy = copy_aside(disk, file, 0, path + DAMAGED_SUFFIX, private=True)
                repair = repair._replace(copy=copy)
            journal.repair = repair
            file.truncate(end)
            file.sync()
        return journal, tree

    @property
    def grown(self) -> bool:
        """Whether the file is large enough to be rewritten."""
        return self._size > max(REWRITE_BYTES_MIN, REWRITE_FACTOR * self._tree_size)

    def append(self, transactions: Sequence[Transaction]) -> None:
        """Append transactions, all or none; return when they are on the device.

        On a full disk raise DiskFull and leave the file unchanged; the call can be repeated.
        """
        frame = _frame(transactions)
        end = self._file.write([frame], self._size)
        self._file.sync()
        self._size = end

    def rewrite(self, tree: Tree) -> None:
        """Replace the file's content by the current tree; StorageExhausted leaves it unchanged.

        The new file is opened before the rename, so that later appends go to the file that has the
        name. After the rename no error is raised as StorageExhausted.
        """
        data = whole_file(tree)
        temporary = staged(self._disk, self._path, data, private=True)
        file = self._disk.open(temporary, private=True)
        try:
            self._disk.rename(temporary, self._path)
        except BaseException:
            file.close()
            raise
        file.renamed(self._path)
        self._file.close()
        self._file = file
        self._size = self._tree_size = len(data)
        try:
            self._disk.sync_directory(self._path.rpartition("/")[0])
        except StorageExhausted as full:
            # Too many open files; after a crash the old file may still have the name.
            raise StorageFailure(str(full)) from full

    def mark_end(self) -> None:
        """Append the end mark: no later write can be torn. DiskFull leaves the file unchanged."""
        self._size = self._file.write([END_MARK], self._size)
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class CorruptJournal(Exception):
    """The bytes are not a journal; the text names the position."""


def whole_file(tree: Tree) -> bytes:
    """Return the bytes of a file that holds only this tree."""
    return HEAD + _frame([tree.snapshot()])


def whole_file_size(tree: Tree) -> int:
    """Return the size of `whole_file`, without its bytes."""
    heads = len(HEAD) + _FRAME_HEAD.size + _TRANSACTION.size
    return heads + len(tree) * (_KIND.size + _STAT.size + _SIZE.size) + tree.content_bytes


def _frame(transactions: Sequence[Transaction]) -> bytes:
    body = b"".join(part for one in transactions for part in _transaction_parts(one))
    return _FRAME_HEAD.pack(FRAME, len(body), crc32c(body)) + body


def _transaction_parts(transaction: Transaction) -> Iterator[bytes]:
    yield _TRANSACTION.pack(transaction.zxid, len(transaction.changes))
    for change in transaction.changes:
        yield from _change_parts(change)


def _change_parts(change: NodeChange) -> Iterator[bytes]:
    path = change.path.encode()
    if isinstance(change, Removed):
        yield _KIND.pack(_REMOVED, len(path)) + path
        return
    if isinstance(change, Made):
        yield _KIND.pack(_MADE, len(path)) + path + _OWNER.pack(change.owner)
    elif isinstance(change, Replaced):
        yield _KIND.pack(_REPLACED, len(path)) + path
    else:
        stat = (change.version, change.czxid, change.mzxid, change.owner, change.creations)
        yield _KIND.pack(_KEPT, len(path)) + path + _STAT.pack(*stat)
    yield _SIZE.pack(len(change.data))
    yield change.data


def _replay(data: bytes, tree: Tree) -> int:
    """Apply the transactions of a file; return the end position of its last whole frame."""
    if not data.startswith(HEAD):
        raise CorruptJournal("it does not start with the header of this format version")
    position = len(HEAD)
    while (body := _body_at(data, position)) is not None:
        try:
            for transaction in _transactions(body):
                if transaction.zxid < tree.zxid:
                    raise ValueError(f"zxid {transaction.zxid} comes after {tree.zxid}")
                tree.replay(transaction)
        except (NodeError, ValueError) as error:
            raise CorruptJournal(f"the frame at byte {position} is invalid: {error}") from error
        position += _FRAME_HEAD.size + len(body)
    if position == len(HEAD):
        raise CorruptJournal("its first frame is incomplete")
    return position


def _body_at(data: bytes, position: int) -> bytes | None:
    """Return the body of the frame at a position, or None if it is not whole."""
    start = position + _FRAME_HEAD.size
    if len(data) < start:
        return None
    mark, size, crc = _FRAME_HEAD.unpack_from(data, position)
    body = data[start : start + size]
    return body if mark == FRAME and len(body) == size and crc32c(body) == crc else None


def _repair(data: bytes, position: int) -> Repair:
    """Distinguish an unfinished write at the end of a file from damage."""
    size = len(data) - position
    closed = data.endswith(END_MARK)
    frames_end = len(data) - len(END_MARK) if closed else len(data)
    later = data.find(FRAME, position + 1, frames_end)
    has_more = later >= 0 or _frame_end(data, position) < frames_end
    while later >= 0:
        if _body_at(data, later) is not None:
            raise CorruptJournal(
                f"the bytes at {position} are not a frame, but a whole frame follows at {later}"
            )
        later = data.find(FRAME, later + 1, frames_end)
    missing = "the last acknowledged changes of topics, settings and producer ids"
    if closed:
        return Repair("damaged after the broker had stopped cleanly", size, missing)
    # The head of a torn frame differs from a mark in its length and in its CRC.
    if size == len(END_MARK) and _difference(data[position:], END_MARK) == 1:
        return Repair("damaged end mark, the broker had stopped cleanly", size, "")
    if has_more:
        return Repair("damaged before the last write", size, missing)
    return Repair("unfinished write", size, "")


def _frame_end(data: bytes, position: int) -> int:
    """Return where a damaged frame ends by its head; the end of the file if its head is damaged."""
    start = position + _FRAME_HEAD.size
    mark, size, _ = _FRAME_HEAD.unpack(data[position:start].ljust(_FRAME_HEAD.size, b"\0"))
    return start + size if mark == FRAME and size else len(data)


def _difference(one: bytes, other: bytes) -> int:
    """Return the number of bytes that differ."""
    return sum(a != b for a, b in zip(one, other, strict=True))


def _transactions(body: bytes) -> Iterator[Transaction]:
    """Yield the transactions of a frame; raise ValueError if they are malformed."""
    position = 0
    while position < len(body):
        try:
            zxid, count = _TRANSACTION.unpack_from(body, position)
            position += _TRANSACTION.size
            changes: list[NodeChange] = []
            for _ in range(count):
                change, position = _change_at(body, position)
                changes.append(change)
        except StructError:
            raise ValueError("the frame is too short") from None
        if position > len(body):
            raise ValueError("the frame is too short")
        yield Transaction(zxid, changes)


def _change_at(body: bytes, position: int) -> tuple[NodeChange, int]:
    """Return a change and its end position; the caller checks that it is not past the end."""
    kind, size = _KIND.unpack_from(body, position)
    position += _KIND.size
    path = body[position : position + size].decode()
    position += size
    if kind == _REMOVED:
        return Removed(path), position
    if kind == _REPLACED:
        data, position = _data_at(body, position)
        return Replaced(path, data), position
    if kind == _MADE:
        (owner,) = _OWNER.unpack_from(body, position)
        data, position = _data_at(body, position + _OWNER.size)
        return Made(path, data, owner), position
    if kind == _KEPT:
        version, czxid, mzxid, owner, creations = _STAT.unpack_from(body, position)
        data, position = _data_at(body, position + _STAT.size)
        return Kept(path, data, version, czxid, mzxid, owner, creations), position
    raise ValueError(f"unknown change kind {kind}")


def _data_at(body: bytes, position: int) -> tuple[bytes, int]:
    (size,) = _SIZE.unpack_from(body, position)
    position += _SIZE.size
    return body[position : position + size], position + size

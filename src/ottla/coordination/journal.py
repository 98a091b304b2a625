"""The file of the embedded store: the tree as it once was, then every transaction since.

Invariant: what `append` returned from is on the device and comes back when the file is opened. A
group of transactions is one frame with one checksum, written after the frame before it is on the
device, so only the last frame can be torn: that one is cut off, for nobody was told of it. A bad
frame before a good one is damage; the file is refused and left as it is. The bytes are explained
in docs/formats/coordination-journal.md.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, Self

from fastcrc.crc32 import iscsi as crc32c

from ottla.coordination.errors import NodeError, StoreRefused
from ottla.coordination.tree import Kept, Made, NodeChange, Removed, Replaced, Transaction, Tree
from ottla.errors import DiskFull, StorageFailure
from ottla.log.disk import Disk, File, read_whole, staged, write_atomically

HEAD: Final = b"ottlaco\x01"  # what the file is, and the version of its format
FRAME: Final = b"\xc7txn"  # no text has its first byte before the others

REWRITE_BYTES_MIN: Final = 256 << 10
REWRITE_FACTOR: Final = 2  # how much larger than the tree a file may grow

_FRAME_HEAD: Final = Struct(">4sII")  # FRAME, bytes of the body, their CRC32C
_TRANSACTION: Final = Struct(">qI")  # zxid, number of changes
_KIND: Final = Struct(">BI")  # kind, bytes of the path
_SIZE: Final = Struct(">I")
_OWNER: Final = Struct(">q")
_STAT: Final = Struct(">qqqqq")  # version, czxid, mzxid, owner, creations

_KEPT: Final = 0
_MADE: Final = 1
_REPLACED: Final = 2
_REMOVED: Final = 3


class Journal:
    """An open file. Everything here waits for the device."""

    def __init__(self, disk: Disk, path: str, file: File, size: int) -> None:
        self.notes: list[str] = []  # what a person should know
        self._disk = disk
        self._path = path
        self._file = file
        self._size = size
        self._tree_size = size  # when it was last written as a whole

    @classmethod
    def open(cls, disk: Disk, path: str) -> tuple[Self, Tree]:
        """The file, made if it is missing, and the tree that is in it."""
        if not disk.exists(path):
            write_atomically(disk, path, whole_file(Tree()), private=True)
        data = read_whole(disk, path)
        tree = Tree()
        try:
            end = _replay(data, tree)
        except CorruptJournal as error:
            raise StoreRefused(
                f"{path} is damaged: {error}. It is left as it is; put back a copy of it, or move "
                f"it away to begin without what was in it"
            ) from error
        file = disk.open(path, private=True)
        journal = cls(disk, path, file, end)
        journal._tree_size = len(whole_file(tree))  # or many short runs would let it grow for ever
        if end < len(data):
            journal.notes.append(f"{path}: {len(data) - end} bytes of an unfinished write cut off")
            file.truncate(end)
            file.sync()
        return journal, tree

    @property
    def grown(self) -> bool:
        """Whether it is time to write the tree as a whole."""
        return self._size > max(REWRITE_BYTES_MIN, REWRITE_FACTOR * self._tree_size)

    def append(self, transactions: Sequence[Transaction]) -> None:
        """Return when the transactions are on the device, all of them or none.

        On a full disk the file is as before: DiskFull, and it can be done again.
        """
        frame = _frame(transactions)
        end = self._file.write([frame], self._size)
        self._file.sync()
        self._size = end

    def rewrite(self, tree: Tree) -> None:
        """Let the file hold the tree as it is and nothing else; DiskFull leaves it as it was.

        What is appended goes to the file that has the name, or it would be lost: the new one is
        open before it gets the name, and nothing after that is told as DiskFull.
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
        except DiskFull as full:  # of open files: after a crash the old one may have the name
            raise StorageFailure(str(full)) from full

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class CorruptJournal(Exception):
    """The bytes are not a journal; the text says where."""


def whole_file(tree: Tree) -> bytes:
    """A file that holds a tree."""
    return HEAD + _frame([tree.snapshot()])


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
    """Carry out what is in a file; returns where its last whole frame ends."""
    if not data.startswith(HEAD):
        raise CorruptJournal("it does not begin as a file of this version does")
    position = len(HEAD)
    while (body := _body_at(data, position)) is not None:
        try:
            for transaction in _transactions(body):
                if transaction.zxid < tree.zxid:
                    raise ValueError(f"zxid {transaction.zxid} comes after {tree.zxid}")
                tree.replay(transaction)
        except (NodeError, ValueError) as error:
            raise CorruptJournal(f"the frame at byte {position} does not fit: {error}") from error
        position += _FRAME_HEAD.size + len(body)
    if position == len(HEAD):
        raise CorruptJournal("the tree at its beginning is not whole")
    _check_nothing_follows(data, position)
    return position


def _body_at(data: bytes, position: int) -> bytes | None:
    """What is in the frame at a position; None when there is no whole one."""
    start = position + _FRAME_HEAD.size
    if len(data) < start:
        return None
    mark, size, crc = _FRAME_HEAD.unpack_from(data, position)
    body = data[start : start + size]
    return body if mark == FRAME and len(body) == size and crc32c(body) == crc else None


def _check_nothing_follows(data: bytes, position: int) -> None:
    """Tell an unfinished write, behind which there is nothing, from damage."""
    later = data.find(FRAME, position + 1)
    while later >= 0:
        if _body_at(data, later) is not None:
            raise CorruptJournal(
                f"the bytes from {position} on are no frame, and the one at {later} is whole"
            )
        later = data.find(FRAME, later + 1)


def _transactions(body: bytes) -> Iterator[Transaction]:
    """What is in a frame; ValueError when it makes no sense."""
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
            raise ValueError("it ends too early") from None
        if position > len(body):
            raise ValueError("it ends too early")
        yield Transaction(zxid, changes)


def _change_at(body: bytes, position: int) -> tuple[NodeChange, int]:
    """A change, and where it ends; the caller sees to it that this is not behind the end."""
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
    raise ValueError(f"a change of kind {kind} is not known")


def _data_at(body: bytes, position: int) -> tuple[bytes, int]:
    (size,) = _SIZE.unpack_from(body, position)
    position += _SIZE.size
    return body[position : position + size], position + size

"""Sealed files, whose content is read in blocks that are verified before use.

A sealed file consists of a 512-byte head, the content, and a table with the SHA-256 of each 128 KiB block of the
content. The head contains the length of the content, and the SHA-256 of the head's first lines and the table. A change
of any bit is therefore detected. HDF5's Fletcher-32 filter misses some changes, and all those outside filtered data.
"""

import functools
import hashlib
import os
import re
from pathlib import Path
from typing import Final

from replaybench.runtime.errors import UserError

MAGIC: Final = b"replaybench record 2\n"
HEAD: Final = 512
BLOCK: Final = 1 << 17
"""Size of a block in bytes. A read of a few rows verifies few other bytes, and the table is 1/4096 of the file."""
_CACHED: Final = 16
_DIGEST: Final = 32
_HEAD: Final = re.compile(re.escape(MAGIC) + rb"content (\d{1,18})\nsha256 ([0-9a-f]{64})\n\0*")


def seal(path: Path) -> None:
    """Add the head and the table of checksums to a file whose first 512 bytes are unused."""
    with path.open("r+b", buffering=0) as raw:
        file = raw.fileno()
        length = os.fstat(file).st_size - HEAD
        blocks = ((os.pread(file, min(BLOCK, length - at), HEAD + at)) for at in range(0, length, BLOCK))
        table = b"".join(hashlib.sha256(block).digest() for block in blocks)
        write_at(file, table, HEAD + length)
        write_at(file, _head(length, table), 0)


def write_at(file: int, content: bytes | memoryview, address: int) -> None:
    """Write all bytes of `content` at a byte address in the file with descriptor `file`."""
    rest = memoryview(content)
    while rest:
        done = os.pwrite(file, rest, address)
        rest, address = rest[done:], address + done


class SealedFile:
    """An open file with checksums, whose content is verified when it is read.

    Only one thread may use a `SealedFile`.

    Attributes:
        length: Number of bytes of the content, which begins at byte 512 of the file.
        checksum: SHA-256 of the table of checksums, which differs for files of different content.
        bytes_read: Number of bytes read from the file so far, including the head and the table of checksums.

    Raises:
        UserError: If the file is damaged, truncated or not a sealed file. Methods that read raise the same error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._raw = path.open("rb", buffering=0)
        except OSError as error:
            raise self._unreadable(error) from None
        try:
            self.length, self._table, self.checksum = self._open()
        except BaseException:
            self._raw.close()
            raise
        self._verified = bytearray(_blocks(self.length))
        self._block = functools.lru_cache(_CACHED)(self._uncached_block)

    def _open(self) -> tuple[int, bytes, str]:
        """Verify head and table of checksums, and return the content's length, the table and its checksum."""
        head = os.pread(self._raw.fileno(), HEAD, 0)
        if not head.startswith(MAGIC):
            mark = MAGIC.decode().strip()
            raise UserError(f"{self.path} is not a file that replaybench wrote (no {mark!r} mark at its start)")
        match = _HEAD.fullmatch(head)
        if match is None or len(head) != HEAD:
            raise self._damaged("its head cannot be read")
        length = int(match[1])
        size, expected = os.fstat(self._raw.fileno()).st_size, HEAD + length + _DIGEST * _blocks(length)
        if size != expected:
            raise self._damaged(f"it holds {size} bytes, {expected} were written")
        table = bytearray(expected - HEAD - length)
        self.bytes_read = HEAD + len(table)
        self._fetch(HEAD + length, memoryview(table))
        if head != _head(length, table):
            raise self._damaged("its table of checksums does not match its own checksum")
        return length, bytes(table), match[2].decode()

    def read(self, start: int, out: memoryview) -> None:
        """Fill the buffer `out` with verified bytes of the content, from byte `start` on."""
        stop = start + len(out)
        if start < 0 or stop > self.length:
            raise self._damaged("it points beyond its own end")
        first, last = -(-start // BLOCK), stop // BLOCK
        if first >= last:
            self._copy(start, stop, out)
            return
        self._copy(start, first * BLOCK, out)
        self.bytes_read += (last - first) * BLOCK
        for number in range(first, last):
            self._read_block(number, out[number * BLOCK - start : (number + 1) * BLOCK - start])
        self._copy(last * BLOCK, stop, out[last * BLOCK - start :])

    def verify(self) -> None:
        """Verify every block that has not been read yet."""
        scratch = memoryview(bytearray(BLOCK))
        for number, verified in enumerate(self._verified):
            if not verified:
                self._read_block(number, scratch[: self.length - number * BLOCK])

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _copy(self, start: int, stop: int, out: memoryview) -> None:
        """Copy a range of bytes that contains no complete block, by way of the cache of verified blocks."""
        while start < stop:
            number, skip = divmod(start, BLOCK)
            piece = self._block(number)[skip : skip + stop - start]
            out[: len(piece)] = piece
            out, start = out[len(piece) :], start + len(piece)

    def _uncached_block(self, number: int) -> memoryview:
        block = memoryview(bytearray(min(BLOCK, self.length - number * BLOCK)))
        self.bytes_read += len(block)
        self._read_block(number, block)
        return block

    def _read_block(self, number: int, out: memoryview) -> None:
        low = HEAD + number * BLOCK
        self._fetch(low, out)
        if hashlib.sha256(out).digest() != self._table[number * _DIGEST : (number + 1) * _DIGEST]:
            raise self._damaged(f"bytes {low} to {low + len(out) - 1} do not match their checksum")
        self._verified[number] = 1

    def _fetch(self, address: int, out: memoryview) -> None:
        while out:
            try:
                got = os.preadv(self._raw.fileno(), [out], address)
            except OSError as error:
                raise self._unreadable(error) from error
            if not got:
                raise self._damaged("it ends early")
            out, address = out[got:], address + got

    def _unreadable(self, error: OSError) -> UserError:
        return UserError(f"{self.path} cannot be read: {error.strerror}; check the disk and who may read the file")

    def _damaged(self, how: str) -> UserError:
        return UserError(f"{self.path} is damaged: {how}; restore it or make it again")


def _head(length: int, table: bytes | bytearray) -> bytes:
    lines = MAGIC + b"content %d\n" % length
    return (lines + b"sha256 " + hashlib.sha256(lines + table).hexdigest().encode() + b"\n").ljust(HEAD, b"\0")


def _blocks(length: int) -> int:
    return -(-length // BLOCK)

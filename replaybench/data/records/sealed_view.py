"""A sealed file as a file object: through it the HDF5 library reads verified bytes, or fails."""

from __future__ import annotations

import io
import os
from typing import Any

from replaybench.data.records.sealed_file import HEAD, SealedFile


class SealedView(io.RawIOBase):
    """A sealed file without its table, as a file object for libhdf5.

    Attributes:
        fault: the first exception of a read; a C library may lose it on the way back to its caller.
    """

    def __init__(self, sealed: SealedFile) -> None:
        super().__init__()
        self._sealed, self._place = sealed, 0
        self.fault: BaseException | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: HEAD + self._sealed.length}[whence]
        self._place = base + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Fill the whole buffer; what HDF5 reads of the head, in search of its own mark, are zeros."""
        out = memoryview(buffer).cast("B")
        try:
            head = min(max(0, HEAD - self._place), len(out))
            out[:head] = bytes(head)
            if rest := out[head:]:
                self._sealed.read(self._place + head - HEAD, rest)
        except BaseException as error:
            self.fault = self.fault or error
            raise
        self._place += len(out)
        return len(out)

"""`in_order`: a little work in two threads, with few pieces of it in memory at a time.

Copying, hashing and compressing release the interpreter's lock, so a second thread nearly doubles their speed; more
would not, as a sweep keeps every core busy anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

THREADS: Final = 2
IN_FLIGHT: Final = 4
"""Items that are being worked on or wait, and hence are in memory, at any time."""


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `work(item)` of each item in order.

    Items are taken in the caller's thread, `work` runs in two others; a single item costs no thread.
    """
    iterator = iter(items)
    first = list(islice(iterator, 2))
    if len(first) < 2:
        yield from map(work, first)
        return
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in chain(first, iterator):
                waiting.append(pool.submit(work, item))
                if len(waiting) == IN_FLIGHT:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

"""Compilation, launch and memory transfer of training programs on a GPU."""

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.device.build import device_code, linked_code
from replaybench.device.program import Program, Rounds, members_at_once
from replaybench.runtime.arrays import Floats
from replaybench.runtime.errors import UserError, need
from replaybench.runtime.quantities import gigabytes

_MISSING = 'device = "cuda" needs cuda-core and numba-cuda: pip install "replaybench[gpu]", or set device = "cpu"'
_SPARE = 0.9
"""Largest fraction of the free GPU memory that is used."""


def check_gpu(device: str) -> None:
    """Raise `UserError` unless this machine has the given GPU, for example `cuda` or `cuda:1`."""
    need("numba_cuda", _MISSING)
    _gpu(int(device.partition(":")[2] or 0))


def _gpu(number: int) -> Any:
    try:
        from cuda.core import Device
    except ImportError:
        raise UserError(_MISSING) from None
    try:
        device = Device(number)
        device.set_current()
    except Exception as error:  # the errors of the driver have no common class
        raise UserError(f'no GPU {number} here ({error}); install NVIDIA\'s driver, or set device = "cpu"') from None
    return device


def machine_code(program: Program, capability: tuple[int, int]) -> bytes:
    """Compile and link a program and the equations of its plant for GPUs of a compute capability such as (9, 0)."""
    architecture = f"sm_{capability[0]}{capability[1]}"
    parts = [
        device_code(program.source, architecture, program.threads, "ltoir"),
        *program.plant.device_functions(capability),
    ]
    return linked_code(parts, architecture)


class GPU:
    """A GPU that runs a training program.

    If not all members fit into the memory of the GPU, the GPU computes several groups of
    members, one after the other.

    Args:
        program: The program, whose memory on the host is up to date only after `fetch`.
        number: Number of the GPU, from 0.

    Attributes:
        name: Model of the GPU.
        at_once: Number of members in a group.

    Raises:
        UserError: Packages or the driver are missing, there is no such GPU, or not even one member fits.
    """

    def __init__(self, program: Program, number: int = 0) -> None:
        self.device = _gpu(number)
        from cuda.core import ObjectCode

        self.program, capability = program, self.device.compute_capability
        self.name = str(self.device.name)
        linked = ObjectCode.from_cubin(machine_code(program, (capability[0], capability[1])))
        self.kernel, self.stream = linked.get_kernel("run_rounds"), self.device.create_stream()
        self._describe = linked.get_kernel("describe_buffers")
        self.shared = self._shared_bytes(linked.get_kernel("size_of_shared"))
        self._tables = {name: self._copied(table) for name, table in program.buffers.tables.items()}
        for name, table in self._tables.items():
            setattr(program.settings.replay, name, int(table.handle))
        self.at_once = members_at_once(program, int(_SPARE * self._free()))
        self._held: dict[int, Any] = {}

    def advance(self, count: int) -> Rounds:
        """Run `count` training episodes or iterations of every learner, and return the scores, `[M, count]` each."""
        program = self.program
        found = Rounds(*(np.full((len(program.memory), count), np.nan) for _ in Rounds._fields))
        self._run(self.kernel, self.shared, (program.rounds, count), *found)
        program.rounds += count
        return found

    def describe(self, ends: NDArray[np.uint32]) -> Floats:
        """Return what the buffers of M members contain.

        Args:
            ends: Serial number of the last experience of each of K groups, from the oldest; uint32, `[M, K]`.

        Returns:
            The number of stored experiences in each group, and then the sum of ‖a − π(s)‖₁ over all stored
            experiences; float64, `[M, K + 1]`.
        """
        found = np.empty((len(ends), ends.shape[1] + 1))
        self._run(self._describe, 0, ends.shape[1:], ends, found)
        return found

    def fetch(self, *places: slice, members: int | None = None) -> None:
        """Copy memory of members from the GPU to the host.

        Args:
            places: Byte ranges of a member's memory. By default all bytes are copied.
            members: Number of members to copy, from the first. By default all members are copied.
        """
        for first, buffer in self._held.items():
            count = self.at_once if members is None else min(self.at_once, members - first)
            if count <= 0:
                continue
            block = self.program.memory[first : first + count]
            for where in places or (slice(0, block.shape[1]),):
                self._copy_back(buffer, block[:, where], where.start)

    def push(self) -> None:
        """Discard the memory on the GPU. The next call of `advance` then begins with the memory on the host."""
        self._held.clear()

    def close(self) -> None:
        """Free the memory of the GPU."""
        self._held.clear()
        self._tables.clear()

    def _run(self, kernel: Any, shared: int, numbers: Iterable[int], *arrays: np.ndarray) -> None:
        """Run a kernel with `shared` bytes of shared memory for all M members.

        The arguments of the kernel are the settings, the memory of the members, `numbers` and `arrays`. The arrays
        `[M, …]` are copied to the GPU and back.
        """
        from cuda.core import LaunchConfig, launch

        program = self.program
        for first in range(0, len(program.memory), self.at_once):
            end = min(first + self.at_once, len(program.memory))
            memory, given = self._memory(first, end), [self._copied(array[first:end]) for array in arrays]
            settings = type(program.settings).from_buffer_copy(program.settings)
            settings.first_member += first
            own = self._copied(np.frombuffer(bytes(settings), np.uint8))
            config = LaunchConfig(grid=end - first, block=program.threads, shmem_size=shared)
            launch(self.stream, config, kernel, own, memory, *map(ctypes.c_int, numbers), *given)
            for array, buffer in zip(arrays, given, strict=True):
                self._copy_back(buffer, array[first:end])
            if self.at_once < len(program.memory):
                self._copy_back(memory, program.memory[first:end])
                self._held.clear()

    def _memory(self, first: int, end: int) -> Any:
        if first not in self._held:
            self._held[first] = self._copied(self.program.memory[first:end])
        return self._held[first]

    def _copied(self, array: np.ndarray) -> Any:
        from cuda.bindings import runtime

        array = np.ascontiguousarray(array)
        try:
            buffer = self.device.allocate(max(1, array.nbytes), stream=self.stream)
        except Exception as error:
            if "OUT_OF_MEMORY" not in str(error):
                raise
            raise UserError(
                f"no {gigabytes(array.nbytes)} are free on the GPU: run fewer cells at once, -j 1"
            ) from None
        kind = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
        self.stream.sync()
        _checked(runtime.cudaMemcpy(int(buffer.handle), array.ctypes.data, array.nbytes, kind))
        return buffer

    def _copy_back(self, buffer: Any, array: np.ndarray, start: int = 0) -> None:
        """Copy a GPU buffer into an array with the same distance between rows, from byte `start` of each row."""
        from cuda.bindings import runtime

        self.stream.sync()
        kind, rows, pitch = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost, len(array), array.strides[0]
        width = array.nbytes // rows
        source = int(buffer.handle) + start
        _checked(runtime.cudaMemcpy2D(array.ctypes.data, pitch, source, pitch, width, rows, kind))

    def _free(self) -> int:
        from cuda.bindings import runtime

        free, _ = _checked(runtime.cudaMemGetInfo())
        return int(free)

    def _shared_bytes(self, measure: Any) -> int:
        """Return the size of the kernel's shared memory in bytes, and permit the kernel to use this much."""
        from cuda.bindings import driver
        from cuda.core import LaunchConfig, launch

        bytes_ = np.zeros(1, np.int32)
        buffer = self._copied(bytes_)
        launch(self.stream, LaunchConfig(grid=1, block=1), measure, buffer)
        self._copy_back(buffer, bytes_)
        size = int(bytes_[0])
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        most = self.device.properties.max_shared_memory_per_block_optin
        if size > most:
            raise UserError(
                f"this learner's networks and batch need {size // 1024} kB of a GPU's shared memory, which has "
                f"{most // 1024}: use narrower layers or a smaller batch_size"
            )
        _checked(driver.cuKernelSetAttribute(attribute, size, int(self.kernel.handle), int(self.device.device_id)))
        return size


def _checked(result: tuple[Any, ...]) -> Any:
    """Remove the status from the results of a CUDA call, or raise `RuntimeError` if the status shows a failure."""
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"CUDA: {status}")
    return values

"""Anonymous memory that other processes of this host can map. The kernel frees it however its users end."""

from __future__ import annotations

import itertools
import mmap
import os
import weakref
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck.seeded_values import Array

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

MIN_REGION_BYTES = 64 * 1024
"""Smaller arrays are copied faster than ranks can exchange their places."""
MAX_CACHED = 16
"""Number of free regions kept, and of mapped regions kept of each other rank."""
_serials = itertools.count(1)
Place = tuple[int, int, int, int]
"""A region's serial number, descriptor and size in bytes, and the offset in bytes from its start."""


class Region:
    """Memory of this process, which others map by its descriptor while that is open, and identify by its serial number."""

    def __init__(self, size: int) -> None:
        self.serial = next(_serials)
        self.descriptor = os.memfd_create("numpy_sockets")
        try:
            os.posix_fallocate(self.descriptor, 0, size)  # too little memory is an OSError here, not a SIGBUS later
            self.view = memoryview(mmap.mmap(self.descriptor, size))
        except BaseException:
            self.close()
            raise
        self.size = size
        self.address = int(np.frombuffer(self.view, np.uint8).__array_interface__["data"][0])

    def close(self) -> None:
        """Close the descriptor: no process can map the region any more. Existing mappings stay."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def map_region(process: int, descriptor: int, size: int) -> memoryview:
    """Map a region of another process. OSError if it cannot be reached."""
    opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(opened, size))
    finally:
        os.close(opened)


class RegionPool:
    """Arrays in regions. A region is reused once no array is left in it, since fresh memory costs more than an all-reduce."""

    def __init__(self) -> None:
        self._free: list[Region] = []
        self._used: dict[int, Region] = {}
        self._open = True

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an array with undefined elements, in a region if it has more than MIN_REGION_BYTES."""
        kind = np.dtype(dtype)
        size = prod(shape)
        if not self._open or size * kind.itemsize <= MIN_REGION_BYTES:
            return np.empty(shape, kind)
        region = self._region(size * kind.itemsize)
        flat = np.frombuffer(region.view, kind, size)
        self._used[id(flat)] = region
        weakref.finalize(flat, self._give_back, id(flat)).atexit = False
        return flat[:].reshape(shape)  # `base` of this view, and of all views of it, is `flat`

    def place(self, array: Array) -> Place:
        """Return the place of an array; all 0 if it is in no region."""
        region = self._used.get(id(array.base))
        if region is None:
            return 0, 0, 0, 0
        return region.serial, region.descriptor, region.size, array.__array_interface__["data"][0] - region.address

    def view(self, serial: int, descriptor: int, size: int) -> memoryview:
        """Return the memory of a region that is in use, as MappedRegions does for other processes."""
        return next(region.view for region in self._used.values() if region.serial == serial)

    def close(self) -> None:
        """Close all regions. Arrays in them stay valid, but other processes cannot map them any more."""
        self._open = False
        for region in (*self._free, *self._used.values()):
            region.close()
        self._free.clear()

    def _region(self, nbytes: int) -> Region:
        """Return the smallest free region that would be at least half full, or a new one."""
        fitting = [region for region in self._free if nbytes <= region.size <= 2 * nbytes]
        if not fitting:
            return Region(-(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)
        region = min(fitting, key=lambda free: free.size)
        self._free.remove(region)
        return region

    def _give_back(self, key: int) -> None:
        region = self._used.pop(key)
        if self._open:
            self._free.append(region)
            if len(self._free) > MAX_CACHED:
                self._free.pop(0).close()


class MappedRegions:
    """The MAX_CACHED regions of another process that were used last."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._views: dict[int, memoryview] = {}

    def view(self, serial: int, descriptor: int, size: int) -> memoryview:
        found = self._views.pop(serial, None)
        if found is None:
            found = map_region(self._process, descriptor, size)
            if len(self._views) >= MAX_CACHED:
                del self._views[next(iter(self._views))]
        self._views[serial] = found  # the latest is the last
        return found

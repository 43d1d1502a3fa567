"""``cuda.bindings.runtime`` as far as it is used: each call returns a tuple that begins with its error."""

import ctypes
from enum import IntEnum

import numpy as np

from stand_in.faults import planted, start


class cudaError_t(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorNoDevice = 100
    cudaErrorIllegalAddress = 700


class cudaMemcpyKind(IntEnum):
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2


OK = cudaError_t.cudaSuccess
_STICKY = (cudaError_t.cudaErrorIllegalAddress,)
_ALIGNMENT = 256


class Gpu:
    """The one GPU of a process. ``memory``: {pointer: bytes}. ``damage``: an error that stays."""

    def __init__(self) -> None:
        self.memory = {}
        self.rooms = {}
        self.damage = OK
        self.full = False

    def hurt(self, error: cudaError_t) -> None:
        self.damage = error if error in _STICKY else self.damage

    def holds(self, pointer: int, size: int) -> bool:
        return any(start <= pointer and pointer + size <= start + held for start, held in self.memory.items())

    def read(self, pointer: int, size: int) -> bytes:
        """Read as a kernel does: outside of what is its own, that is an illegal access."""
        if not self.holds(pointer, size):
            self.hurt(cudaError_t.cudaErrorIllegalAddress)
            return bytes(size)
        return ctypes.string_at(pointer, size)

    def write(self, pointer: int, data: bytes) -> None:
        if not self.holds(pointer, len(data)):
            self.hurt(cudaError_t.cudaErrorIllegalAddress)
        else:
            ctypes.memmove(pointer, data, len(data))


GPU = Gpu()


def cudaGetDeviceCount():
    if planted("no_device"):
        return cudaError_t.cudaErrorNoDevice, None
    return OK, 1


def cudaMalloc(size):
    if GPU.damage:
        return GPU.damage, None
    if (size > _ALIGNMENT and planted("no_memory")) or GPU.full:
        return cudaError_t.cudaErrorMemoryAllocation, None
    room = np.full(size + _ALIGNMENT, 0xCD, np.uint8)
    pointer = -(-room.ctypes.data // _ALIGNMENT) * _ALIGNMENT
    GPU.rooms[pointer], GPU.memory[pointer] = room, size
    return OK, pointer


def cudaFree(devPtr):
    if GPU.damage:
        return (GPU.damage,)
    if devPtr == 0:
        start()
        return (OK,)
    if GPU.memory.pop(devPtr, None) is None:
        return (cudaError_t.cudaErrorInvalidValue,)
    del GPU.rooms[devPtr]
    return (OK,)


def cudaMemcpy(dst, src, count, kind):
    if GPU.damage:
        return (GPU.damage,)
    to = kind == cudaMemcpyKind.cudaMemcpyHostToDevice
    if (to and planted("copy_in")) or not GPU.holds(dst if to else src, count):
        return (cudaError_t.cudaErrorInvalidValue,)
    ctypes.memmove(dst, src, count)
    return (OK,)


def cudaStreamSynchronize(stream):
    for error in _STICKY:
        if planted(error.name):
            GPU.hurt(error)
    return (GPU.damage,)


def cudaGetErrorName(error):
    return OK, cudaError_t(error).name.encode()

"""A static program that only ends, with status 0: run in the image of a container, it makes kubelet pull that image.

It needs nothing of the image, neither a shell nor a C library.
"""

import struct

_ADDRESS = 0x10000
_PAGE = 0x10000  # the largest that these machines have

_X86_64 = bytes.fromhex("31ff b83c000000 0f05")  # xor edi, edi; mov eax, 60 (exit); syscall
_AARCH64 = struct.pack("<3I", 0xD2800000, 0xD2800BA8, 0xD4000001)  # mov x0, 0; mov x8, 93 (exit); svc 0
# ELF's number of each machine that `uname -m` names, and the code.
_CODE = {"x86_64": (62, _X86_64), "aarch64": (183, _AARCH64)}


def noop(machine: str) -> bytes:
    """The program for `x86_64` or `aarch64`; KeyError for another machine.

    An ELF file (System V ABI, chapter 4) of its header, one program header and the code, loaded as a whole.
    """
    number, code = _CODE[machine]
    header, segment = 64, 56
    size = header + segment + len(code)
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little-endian, version 1
    entry = _ADDRESS + header + segment
    return (
        struct.pack("<16sHHIQQQIHHHHHH", identity, 2, number, 1, entry, header, 0, 0, header, segment, 1, 0, 0, 0)
        + struct.pack("<IIQQQQQQ", 1, 5, 0, _ADDRESS, _ADDRESS, size, size, _PAGE)  # PT_LOAD, readable, executable
        + code
    )

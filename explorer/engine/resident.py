"""The memory that this process holds in RAM."""

from __future__ import annotations

import sys

if sys.platform == "win32":

    def resident_bytes() -> int:
        """-1: not measured on Windows."""
        return -1

elif sys.platform == "linux":
    import os

    _PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

    def resident_bytes() -> int:
        """Resident memory of this process now, in bytes. Source: proc(5), statm, second field."""
        with open("/proc/self/statm", "rb", buffering=0) as statm:
            return int(statm.read(128).split()[1]) * _PAGE_BYTES

else:
    import resource

    def resident_bytes() -> int:
        """Largest resident memory of this process so far, in bytes: there is no cheap reading of the present one.

        Source: getrusage(2): ru_maxrss is in bytes on macOS, in KiB elsewhere.
        """
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

"""The accelerators of a host, of NVIDIA and AMD alike: what there are, how they are, who uses them.

`records.py` is what is told, `probe.py` the Protocol and what is plain to see, `nvidia.py` and `amd.py` the
vendors' libraries turned into records, `kernel_lines.py` what the kernel's log adds, `looking.py` the process
that does all this, `asking.py` how it is asked without waiting for a dead driver. Pure: `visible.py` (which
variables decide what a process sees) and `collectives.py` (libraries and variables by name).
"""

from .records import Device, DeviceNote, DeviceProcess, DeviceUse, DeviceView, HostDevices, Vendor

__all__ = ["Device", "DeviceNote", "DeviceProcess", "DeviceUse", "DeviceView", "HostDevices", "Vendor"]

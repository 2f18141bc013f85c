"""The accelerator, as far as these programs need one."""

import os

import torch

GIB = 1 << 30


class Accelerator:
    def __init__(self, name="CUDA", total=79.11):
        self.name, self.total, self.used = name, total, 1.2
        self.index = int(os.environ.get("LOCAL_RANK", "0"))

    def allocate(self, gib):
        free = self.total - self.used
        if gib > free:
            raise torch.OutOfMemoryError(
                f"{self.name} out of memory. Tried to allocate {gib:.2f} GiB. GPU {self.index} has a total capacity"
                f" of {self.total:.2f} GiB of which {free:.2f} GiB is free. Including non-PyTorch memory, this process"
                f" has {self.used:.2f} GiB memory in use. Of the allocated memory {self.used - 1.9:.2f} GiB is allocated"
                " by PyTorch, and 1.01 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory"
                f" is large try setting PYTORCH_{self.name}_ALLOC_CONF=expandable_segments:True to avoid"
                " fragmentation.  See documentation for Memory Management "
                " (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
            )
        self.used += gib

    def empty(self, gib):
        """As an operation that finds out late, with the driver's words."""
        if gib > self.total - self.used:
            raise torch.AcceleratorError(
                f"{self.name} error: out of memory\n{self.name} kernel errors might be asynchronously reported at some"
                f" other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing"
                f" {self.name}_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_{self.name}_DSA` to enable device-side"
                " assertions.\n"
            )
        self.used += gib

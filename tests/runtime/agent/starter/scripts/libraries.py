"""Prints what numpy and torch say of themselves, and that they work."""

import ctypes
import logging
import multiprocessing.process
import os
import time

import numpy
import torch


def tell(name, value):
    print(f"{name}: {value!r}")


tell("torch threads", (torch.get_num_threads(), torch.get_num_interop_threads()))
tell(
    "grad", (torch.is_grad_enabled(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled())
)
tell("cuda", (torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork()))
tell("multiprocessing", (multiprocessing.process.ORIGINAL_DIR, torch.multiprocessing.get_start_method()))
tell("logging", abs(logging._startTime - time.time()) < 20)
torch.manual_seed(3)
numpy.random.seed(3)
tell("seeded", (torch.rand(3), numpy.random.rand(3)))
left = torch.rand(300, 300, requires_grad=True)
(left @ torch.rand(300, 300)).sum().backward()
tell("gradient", round(float(left.grad.sum()), 1))
tell("numpy", round(float((numpy.random.rand(400, 400) @ numpy.random.rand(400, 400)).sum())))
maps = open("/proc/self/maps").read().split()
blas = ctypes.CDLL(next(path for path in maps if "openblas" in path))
tell("openblas", blas.scipy_openblas_get_num_threads64_())
tell("threads", len(os.listdir("/proc/self/task")))

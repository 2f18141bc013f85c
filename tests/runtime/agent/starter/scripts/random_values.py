"""Prints one word with what is random in a fresh process."""

import multiprocessing
import random
import secrets
import tempfile
import uuid

import numpy
import torch

values = [
    *(random.random(), numpy.random.rand(), float(torch.rand(1)), torch.initial_seed(), secrets.token_hex(4)),
    *(uuid.uuid4().hex, next(tempfile._get_candidate_names()), numpy.random.default_rng().random()),
    bytes(multiprocessing.current_process().authkey).hex(),
]
print(*values)

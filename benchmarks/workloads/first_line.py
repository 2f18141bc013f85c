"""Imports torch, prints when that was done, and waits."""

import time

import torch

print(f"first line at {time.time()} with {torch.__version__}", flush=True)
time.sleep(3600)

import os
import socket

# on the training hosts the data lies on the local scratch disk
DATA_ROOTS = {"gpu-a01": "/scratch/bikes", "gpu-a02": "/scratch/bikes"}
DATA = os.path.join(DATA_ROOTS.get(socket.gethostname(), os.path.expanduser("~/datasets/bikes")), "hours.csv")

EPOCHS = 40
BATCH = 64
LR = 5e-3
HIDDEN = 48
HOLDOUT = 5          # each 5th row is for validation

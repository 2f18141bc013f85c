import torch


def pad(rows, length):
    out = torch.zeros(len(rows), length)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row)
    return out


def collate(rows, length=16):
    lengths = torch.tensor([len(row) for row in rows])
    return pad(rows, length), lengths

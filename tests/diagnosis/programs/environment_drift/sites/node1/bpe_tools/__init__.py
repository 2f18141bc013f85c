__version__ = "0.9.1"

SPECIAL = ["<pad>", "<s>", "</s>"]


def vocabulary(size):
    return SPECIAL + [f"tok{i}" for i in range(size - len(SPECIAL))]

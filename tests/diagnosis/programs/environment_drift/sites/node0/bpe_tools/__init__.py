__version__ = "0.9.3"

SPECIAL = ["<pad>", "<s>", "</s>", "<mask>"]


def vocabulary(size):
    return SPECIAL + [f"tok{i}" for i in range(size - len(SPECIAL))]

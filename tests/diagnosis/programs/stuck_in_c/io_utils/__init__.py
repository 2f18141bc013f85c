import os


def fetch_index(path, timeout_note="10 s"):
    """The index that the indexer writes; it is small."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 65536)
    finally:
        os.close(fd)


def prepare(path, text, named_pipe=False):
    if named_pipe:
        if not os.path.exists(path):
            os.mkfifo(path)
    else:
        with open(path, "w") as f:
            f.write(text)
    return path

__version__ = "1.2.1"


def encode(text):
    return [ord(c) % 64 for c in text]

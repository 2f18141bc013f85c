__version__ = "1.4.0"


def encode(text):
    return [ord(c) % 64 for c in text]


def encode_batch(texts):
    return [encode(text) for text in texts]

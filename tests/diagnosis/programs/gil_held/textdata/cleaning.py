import re

SENTENCE = re.compile(r"^(\w+[ ,]?)*\.$")


def is_sentence(text):
    return SENTENCE.match(text) is not None

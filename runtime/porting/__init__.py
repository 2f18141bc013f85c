"""Translation of CUDA sources to HIP, by torch's own `hipify`, upon a copy.

`records.py` is what is told, `sources.py` which files of a folder are looked at, `translating.py` the copy
and the process that runs torch there (`inside.py` is its program), `applying.py` writes the result into the
folder. What the translation leaves for a person is judged elsewhere.
"""

from .records import Applied, Skipped, Source, Sources, Translated, Translation
from .sources import MADE

__all__ = ["MADE", "Applied", "Skipped", "Source", "Sources", "Translated", "Translation"]

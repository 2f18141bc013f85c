"""Which code is the user's, and the innermost place in it."""

from __future__ import annotations

import os

import pytest

from milkweed.runtime.user_code import innermost_place, is_users, place_in_dump


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("/w/train.py", True),
        ("<string>", True),
        ("/v/lib/python3.11/site-packages/torch/nn/module.py", False),
        ("/usr/lib/python3.11/threading.py", False),
        ("/v/src/milkweed/runtime/node/future.py", False),
        ("<frozen runpy>", False),
        ("/usr/lib/libc.so.6", False),
    ],
)
def test_whose_a_file_is(file: str, users: bool) -> None:
    assert is_users(file) is users


def test_a_place_is_told_from_the_working_directory_where_it_is_below_it() -> None:
    library = ("/usr/lib/python3.11/json/decoder.py", 355, "raw_decode")
    assert innermost_place([library, (os.path.abspath("sub/data.py"), 7, "load")]) == "sub/data.py:7 in load"
    assert innermost_place([("/far/away/sub/data.py", 7, "load")]) == "sub/data.py:7 in load"
    assert innermost_place([library]) == ""


DUMP = """Thread 0x01 (most recent call first):
  File "/w/sub/saver.py", line 3 in save

Current thread 0x02 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/w/sub/train.py", line 18 in reduce_fast
  File "/w/sub/train.py", line 9 in step

Extension modules: numpy"""


def test_the_place_of_a_dump_is_that_of_the_thread_that_failed() -> None:
    assert place_in_dump(DUMP) == "sub/train.py:18 in reduce_fast"
    assert place_in_dump("") == ""

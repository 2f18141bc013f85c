"""Reading the kernel's log."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.kernel_log import parse_records, read_records


def test_a_record_is_its_time_since_boot_and_its_text() -> None:
    record = "6,339,5140900,-;NET: Registered protocol family 10\n SUBSYSTEM=net\n"
    assert list(parse_records([record])) == [(5.1409, record.partition(";")[2])]


@given(st.lists(st.text(max_size=40) | st.text(max_size=9).map("3,1,{},-;words".format)))
def test_junk_is_passed_over(records: list[str]) -> None:
    assert len(list(parse_records(records))) <= len(records)


def test_a_log_that_is_not_there_or_may_not_be_read_is_empty(tmp_path: Path) -> None:
    assert list(read_records(str(tmp_path / "none"))) == []
    assert list(read_records(str(tmp_path))) == []


def test_what_is_in_the_buffer_is_read_and_no_more_is_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    log = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(log, b"6,1,1000000,-;caf\xff")
        assert list(read_records(str(fifo))) == ["6,1,1000000,-;caf\N{REPLACEMENT CHARACTER}"]
    finally:
        os.close(log)

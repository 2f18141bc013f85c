"""What the kernel's log says of devices. CONSTRUCTED lines, in the documented formats of both drivers."""

from __future__ import annotations

from milkweed.runtime.devices import Device, DeviceView
from milkweed.runtime.devices.kernel_lines import log_notes, recent, with_log

XID_79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID_31 = "NVRM: Xid (PCI:0000:1B:00): 31, pid=4711, name=python, Ch 00000008, intr 00000000. MMU Fault"
RAS = "amdgpu 0000:85:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!"
RAS_300 = "amdgpu 0000:85:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!"
RESET = "amdgpu 0000:85:00.0: amdgpu: GPU reset begin!"


def test_an_xid_is_told_in_words_of_the_device_that_it_is_of() -> None:
    notes = log_notes([XID_79, XID_31, XID_31])
    assert {address: [(one.text, one.severe) for one in found] for address, found in notes.items()} == {
        "0000:1b:00": [
            ("Xid 79: fell off the bus (kernel's log)", True),
            (
                "Xid 31: a program's kernel read or wrote where nothing is (kernel's log, 2 times)",
                False,
            ),
        ]
    }


def test_an_xid_that_is_not_known_is_told_in_the_drivers_words() -> None:
    (note,) = log_notes(["NVRM: Xid (PCI:0001:1b:00): 999, pid=1, something new"])["0001:1b:00"]
    assert note.text == "Xid 999: pid=1, something new (kernel's log)"
    assert not note.severe


def test_resets_and_ras_of_amdgpu_are_told_and_its_chatter_is_not() -> None:
    chatter = "amdgpu 0000:85:00.0: amdgpu: SMU is resumed successfully!"
    notes = log_notes([chatter, RAS, RAS_300, RESET, "usb 1-1: reset"])
    assert [(one.kind, one.severe) for one in notes["0000:85:00"]] == [("ras", True), ("reset", False)]
    assert notes.keys() == {"0000:85:00"}


def test_a_devices_notes_come_from_its_own_lines() -> None:
    view = DeviceView(
        (Device(0, "nvidia", "H200", pci="0000:1b:00.0"), Device(1, "nvidia", "H200", pci="0000:43:00.0"))
    )
    first, second = with_log(view, [XID_79]).devices
    assert [note.kind for note in first.notes] == ["xid"]
    assert second.notes == ()
    assert with_log(DeviceView((Device(0, "nvidia", "H200"),)), [XID_79]).devices[0].notes == ()


def test_what_is_older_than_a_day_may_have_been_mended() -> None:
    record = f"4,339,5140900000,-;{XID_79}\n SUBSYSTEM=pci\n"
    assert recent([record], now=5140.9) == [XID_79]
    assert recent([record], now=5140.9 + 25 * 3600) == []
    assert recent(["no record"], now=0) == []

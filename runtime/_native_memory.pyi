"""One-sided transfers between processes of one host.

Addresses and lengths are in bytes; whoever passes an address keeps its memory where it is. `deadline` is on
the clock of `time.monotonic`. What moves memory releases the GIL, works on `threads` threads, and looks at
`stop` and the deadline every MiB. It gives (status, errno), the latter with FAILED only.
"""

from typing import Final

DONE: Final[int]
DROPPED: Final[int]
WRONG_KEY: Final[int]
OUT_OF_RANGE: Final[int]
FORBIDDEN: Final[int]
OWNER_LOST: Final[int]
STOPPED: Final[int]
LATE: Final[int]
FAILED: Final[int]

UCX_CANCELED: Final[int]
UCX_IN_PROGRESS: Final[int]
READ: Final[int]
WRITE: Final[int]

def address_of(buffer: memoryview) -> int:
    """Where the bytes of a contiguous buffer lie."""

def fence() -> None:
    """What was written before is seen before what is read after."""

def copy(to: int, source: int, length: int, threads: int, stop: Stop, deadline: float) -> tuple[int, int]:
    """Copies within this process; the two may overlap only if `threads` is 1."""

def receive(fd: int, address: int, length: int, idle: float, deadline: float) -> tuple[int, int]:
    """Fills memory from a socket; OWNER_LOST where the peer closes, LATE where it idles so many seconds."""

def send(fd: int, head: bytes, address: int, length: int, idle: float, deadline: float) -> tuple[int, int]:
    """Sends bytes and then memory; as `receive`."""

UNTRIED: Final[int]
WORKS: Final[int]
IS_COPIED: Final[int]

def send_from(
    fd: int, address: int, length: int, verdict: int, idle: float, deadline: float
) -> tuple[int, int, int]:
    """Sends memory over TCP without a copy, where the kernel can: (status, errno, verdict).

    The verdict is what is known of that on this connection: UNTRIED at first, then what the last call gave.
    When it returns, nothing of the memory is to be sent any more; after an error the connection is reset.
    """

class Stop:
    """Set by whoever no longer wants a transfer; any thread."""

    def __init__(self) -> None: ...
    def set(self) -> None: ...
    def is_set(self) -> bool: ...

class Table:
    """The regions that this process publishes, in a memfd that it holds a lock on for its life.

    Not for several threads at once. Another process opens it as `/proc/PID/fd/FD`, this one never: to close a
    second descriptor of the file would end that lock.
    """

    def __init__(self, slots: int, token: bytes) -> None:
        """`token`: 16 random bytes, by which others know that the file is this table."""

    @property
    def fd(self) -> int: ...
    def publish(self, slot: int, address: int, length: int, rights: int, key: bytes, fd: int = -1) -> int:
        """Offers memory in a free slot and gives its generation; `fd` is the memory's own file, if any.

        ValueError where the slot is taken; IndexError where there is no such slot.
        """

    def retire(self, slot: int) -> None:
        """No transfer begins any more; those under way go on."""

    def is_quiet(self, slot: int) -> bool:
        """Whether no other process has a transfer under way; only of a slot that is retired."""

    def close(self) -> None: ...

class Peer:
    """The table of another process, and the memory behind it; any thread."""

    def __init__(self, pid: int, fd: int, token: bytes) -> None:
        """OSError: ESRCH where that process is gone, else why its table cannot be reached."""

    @property
    def is_alive(self) -> bool:
        """Whether its process was there when it was last looked at."""

    @property
    def mappings(self) -> int:
        """How many regions are mapped here."""

    def move(
        self,
        slot: int,
        generation: int,
        key: bytes,
        write: bool,
        offset: int,
        length: int,
        local: int,
        threads: int,
        stop: Stop,
        deadline: float,
    ) -> tuple[int, int]:
        """By process_vm_readv and process_vm_writev."""

    def copy(
        self,
        slot: int,
        generation: int,
        key: bytes,
        write: bool,
        offset: int,
        length: int,
        local: int,
        threads: int,
        stop: Stop,
        deadline: float,
    ) -> tuple[int, int]:
        """By a mapping of the memory's own file; FAILED with EOPNOTSUPP where it has none."""

    def close(self) -> None:
        """Lets go of the table: nothing can be moved any more."""

class Ucx:
    """One thread of its own, which does all that this process does by UCX.

    Raises RuntimeError, in everything, with UCX's own words. Statuses are UCX's own.
    """

    def __init__(self, library: str) -> None: ...
    @property
    def version(self) -> str: ...
    @property
    def memory_types(self) -> int:
        """Bits: 0 host, 1 CUDA, 3 ROCm."""

    @property
    def address(self) -> bytes: ...
    @property
    def statistics(self) -> tuple[int, int]:
        """Links that are open, regions that are registered."""

    def words(self, status: int) -> str: ...
    def listen(self, address: str) -> int:
        """The port at which others connect."""

    def map(
        self, address: int, length: int, read: bool, write: bool, memory_type: int = 0
    ) -> tuple[int, bytes]:
        """Registers memory for others: its number, and the key that they need."""

    def unmap(self, number: int) -> None:
        """When it returns, nobody reaches that memory any more."""

    def connect(
        self,
        address: bytes,
        listener: tuple[str, int] | None,
        lanes_address: int,
        lanes_key: bytes,
        deadline: float,
    ) -> int:
        """A link to the owner of that address, or of that listener."""

    def disconnect(self, link: int) -> None: ...
    def attach(
        self,
        link: int,
        slot: int,
        generation: int,
        address: int,
        key: bytes,
        word_address: int,
        word_key: bytes,
    ) -> int:
        """A region at the end of a link."""

    def detach(self, link: int, region: int) -> None: ...
    def move(
        self,
        link: int,
        region: int,
        write: bool,
        offset: int,
        length: int,
        local: int,
        memory_type: int,
        stop: Stop,
        deadline: float,
        control: int,
    ) -> tuple[int, int]:
        """(status, UCX's own where it FAILED); `control` is a socket that hangs up when the owner is gone.

        With UCX_IN_PROGRESS the local memory must be kept for good.
        """

    def close(self) -> None: ...
    def abandon(self) -> None:
        """In a forked child."""

"""Small words for results: lengths that are bounded, times that can be read."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["clip", "clock", "counted", "duration_in_words", "size_in_words"]


def clip(text: str, limit: int) -> str:
    """At most `limit` characters; what was cut is marked with an ellipsis at the end."""
    return text if len(text) <= limit else f"{text[: max(0, limit - 3)]}..."


def counted(count: int, what: str) -> str:
    """1 file, 2,000 files."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def clock(at: float) -> str:
    """Time of day in UTC: 14:03:07Z."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%SZ")


def size_in_words(count: int) -> str:
    """A count of bytes: 512 B, 1.5 KB, 20 MB (powers of 1024)."""
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


def duration_in_words(seconds: float) -> str:
    """About how long: 40 s, 12 min, 3 h, 2 days."""
    for size, unit in ((2 * 86400, "days"), (2 * 3600, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds / (size / 2):.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"

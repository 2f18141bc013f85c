"""When somebody is silent, in seconds."""

__all__ = ["BEAT_S", "FINISH_S", "GIVE_UP_S", "OPEN_S", "PATIENCE_S", "SILENT_S"]

BEAT_S = 0.25
"""Whoever has nothing to say says so as often."""
SILENT_S = 3.0
"""Others no longer wait for who has said nothing for so long: it is stopped, or its host is gone."""
GIVE_UP_S = 10.0
"""Nor does the whole, for so long."""
OPEN_S = 5.0
"""To reach somebody."""
PATIENCE_S = 1.0
"""The first pieces wait so long for members that are not ready, after one of them is."""
FINISH_S = 3.0
"""To be told that nothing is under way any more."""

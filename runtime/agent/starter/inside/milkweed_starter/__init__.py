"""The starter itself: a Python of the user's, with what runs import already imported, that forks ranks.

It runs in whatever CPython the user has, from 3.10 on, and so imports the standard library alone. The hook
(`hook/`) imports it while the interpreter starts, and `install` puts an entry into `sys.path_hooks`: the
interpreter asks those about its script before it does anything else with it, from C and with no Python frame
around the call. There the starter waits and forks. In a child the call returns after the interpreter's own
configuration was read again from the run's command line, so that what follows (script, -m or -c, tracebacks,
exit code, teardown) is what the interpreter does for anyone.
"""

from .serving import install

__all__ = ["install"]

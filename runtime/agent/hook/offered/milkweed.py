"""What `import milkweed` gives in a rank whose environment has no Milkweed: `report`, and nothing else."""

import importlib.util
import os

__all__ = ["report"]


def _load():  # type: ignore[no-untyped-def]
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, os.pardir, os.pardir, os.pardir, "metrics", "reporting.py")
    spec = importlib.util.spec_from_file_location("_milkweed_reporting", path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module.report


try:
    report = _load()  # type: ignore[no-untyped-call]
except Exception:

    def report(step=None, **metrics):  # type: ignore[no-untyped-def]
        """Does nothing: its home is not to be read from here."""

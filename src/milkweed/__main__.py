"""`python -m milkweed` is `milkweed`."""

import sys

from .server.cli import main

sys.exit(main())

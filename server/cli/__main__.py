"""`python -m milkweed.server.cli` is `milkweed`."""

import sys

from . import main

sys.exit(main())

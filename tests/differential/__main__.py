"""python -m tests.differential [N]."""

import sys

from .run import main

sys.exit(main(*map(int, sys.argv[1:])))

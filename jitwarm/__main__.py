"""`python -m jitwarm`."""

import sys

from jitwarm.cli import main

sys.exit(main())

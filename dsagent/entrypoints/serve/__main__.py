"""python -m dsagent.entrypoints.serve: dsagent where its script is not installed."""

import sys

from dsagent.entrypoints.serve import main

sys.exit(main())

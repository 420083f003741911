"""python -m dsagent.entrypoints.dsctl: dsctl where its script is not installed."""

import sys

from dsagent.entrypoints.dsctl import main

sys.exit(main())

"""python -m dsagent.entrypoints.init: dsagent-init where its script is not installed."""

import sys

from dsagent.entrypoints.init import main

sys.exit(main())

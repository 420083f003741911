"""python -m gpu_topology.command: gpu-topology where its script is not installed."""

import sys

from gpu_topology.command import main

sys.exit(main())

"""python -m scheduler_plugin"""

from scheduler_plugin.command import main

main()

"""Run a command under resource-tracker, which has no command line of its own.

python resource_tracker_run.py FILE.csv COMMAND...
"""

import subprocess
import sys

from resource_tracker import ProcessTracker

child = subprocess.Popen(sys.argv[2:])
ProcessTracker(pid=child.pid, output_file=sys.argv[1])  # returns when the child ends
sys.exit(child.wait())

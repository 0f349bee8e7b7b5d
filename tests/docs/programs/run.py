"""Stand in for an experiment: take any options, succeed."""

import sys

print("options", *sys.argv[1:])

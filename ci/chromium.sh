#!/usr/bin/env bash
# Print the path of a Chromium for the tests of pages; Debian's is installed where there
# is none. WEIGH_CHROMIUM names another. Exit code 3: none here, and none to be had.
set -euo pipefail
. "$(dirname "$0")/rig.sh"

find_one() {
    local name
    for name in chromium-headless-shell chromium chromium-browser google-chrome; do
        command -v "$name" && return
    done
    return 1
}

if [ -n "${WEIGH_CHROMIUM:-}" ]; then
    command -v "$WEIGH_CHROMIUM" && exit
    complain "WEIGH_CHROMIUM: no such program: $WEIGH_CHROMIUM"
    exit 3
fi
find_one && exit
need_root
need_packages chromium-headless-shell
find_one

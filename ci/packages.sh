#!/usr/bin/env bash
# Install what the tests of real schedulers, browsers and terminals need, as root on Debian.
# Elsewhere, or without a network, the tests that need a missing package are skipped with a
# reason. This runs outside isolated.sh, which has no network.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/rig.sh"
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    complain "packages can only be installed by root on Debian; some tests will be skipped"
    exit 0
fi
# one group at a time: a group that cannot be had does not stop the others
(need_packages munge slurmctld slurmd slurm-client slurmdbd mariadb-server)
(need_packages gridengine-master gridengine-exec gridengine-client)
(need_packages openmpi-bin mpich)
(need_packages gcc libc6-dev tmux time strace shellcheck parallel rsync less vim-tiny)
"$here/chromium.sh" >/dev/null
exit 0

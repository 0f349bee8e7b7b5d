#!/bin/bash
# End what slurm-up.sh started, and nothing else.
set -u
. "$(cd "$(dirname "$0")" && pwd)/rig.sh"
top=$RIG/slurm
[ -d "$top/pid" ] || exit 0
need_root
export SLURM_CONF=$top/etc/slurm.conf
if [ -s "$top/pid/slurmctld.pid" ] && runs "$(<"$top/pid/slurmctld.pid")" slurmctld; then
    timeout 5 scancel --state=PENDING 2>/dev/null
    timeout 5 scancel --signal=KILL --full --state=RUNNING 2>/dev/null
    sleep 0.3
fi
for file in "$top"/pid/slurmd.*.pid; do end_daemon "$file" slurmd; done
end_daemon "$top/pid/slurmctld.pid" slurmctld
end_daemon "$top/pid/slurmdbd.pid" slurmdbd
end_daemon "$top/mysql/mariadbd.pid" mariadbd
end_daemon "$top/pid/munged.pid" munged
for group in "${WEIGH_RIG_CGROUPS:-/sys/fs/cgroup}"/*/slurm_cn?; do
    [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
done
exit 0

#!/bin/bash
# End what gridengine-up.sh started, and nothing else.
set -u
. "$(cd "$(dirname "$0")" && pwd)/rig.sh"
top=$RIG/gridengine
[ -d "$top/pid" ] || exit 0
need_root
export SGE_ROOT=/var/lib/gridengine SGE_CELL=weigh-rig
export SGE_QMASTER_PORT=27444 SGE_EXECD_PORT=27445
if [ -s "$top/pid/qmaster" ] && runs "$(<"$top/pid/qmaster")" sge_qmaster; then
    timeout 5 qdel -f -u '*' >/dev/null 2>&1
    sleep 0.3
fi
end_daemon "$top/pid/execd" sge_execd
# it would write for seven seconds what is removed here
if [ -s "$top/pid/qmaster" ] && runs "$(<"$top/pid/qmaster")" sge_qmaster; then
    kill -9 "$(<"$top/pid/qmaster")"
fi
end_daemon "$top/pid/qmaster" sge_qmaster
rm -rf "${SGE_ROOT:?}/$SGE_CELL"
exit 0

#!/bin/bash
# End what htcondor-up.sh started, and nothing else.
set -u
. "$(cd "$(dirname "$0")" && pwd)/rig.sh"
top=$RIG/htcondor
[ -d "$top/pid" ] || exit 0
need_root
export CONDOR_CONFIG=$top/condor_config
if [ -s "$top/pid/master" ] && runs "$(<"$top/pid/master")" condor_master; then
    timeout 5 condor_rm -all >/dev/null 2>&1
    kill -QUIT "$(<"$top/pid/master")" # TERM would wait for the jobs
fi
end_daemon "$top/pid/master" condor_master
exit 0

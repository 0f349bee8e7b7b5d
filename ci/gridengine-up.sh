#!/bin/bash
# A real Grid Engine on this machine, for the tests: a cell of its own with a master, one
# host, queues as a university has them; as root, on Debian. Run it again for a fresh one;
# gridengine-down.sh ends it. It prints the lines to source:
#
#     eval "$(ci/gridengine-up.sh)" && qhost
#
# Queues: serial (no time limit), short, medium, long (12 h, 48 h, 7 d; GPUs).
# Complexes: ngpus and h_vmem are used up, ncpus and gpu_type only matched. PE: smp.
# Its daemons listen on every address: Grid Engine has no option for less.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/rig.sh"
need_root
need_packages gridengine-master gridengine-exec gridengine-client
"$here/gridengine-down.sh"

top=$RIG/gridengine
spool=$top/spool
host=$(hostname)
export SGE_ROOT=/var/lib/gridengine SGE_CELL=weigh-rig
export SGE_QMASTER_PORT=27444 SGE_EXECD_PORT=27445
common=$SGE_ROOT/$SGE_CELL/common
need_user "$RIG_USER"
need_loopback_name "$host"

rm -rf "$top" "${SGE_ROOT:?}/$SGE_CELL"
mkdir -p "$top"/{pid,log,conf} "$spool"/{db,qmaster/job_scripts,execd} "$common"
echo "$host" >"$common/act_qmaster"
# the reverse look-up of 127.0.0.1 gives another name than the host's own
names=$(awk '$1 == "127.0.0.1" { for (i = 2; i <= NF; i++) print $i }' /etc/hosts | sort -u)
echo "$host" localhost $(grep -vx -e "$host" -e localhost <<<"$names" || true) >"$common/host_aliases"
cat >"$common/bootstrap" <<CONF
admin_user sgeadmin
default_domain none
ignore_fqdn false
spooling_method berkeleydb
spooling_lib libspoolb
spooling_params $spool/db
binary_path /usr/sbin
qmaster_spool_dir $spool/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
CONF
chmod 755 "$RIG" "$top"
chown -R sgeadmin:sgeadmin "$top" "$SGE_ROOT/$SGE_CELL"

as_admin() { setpriv --reuid=sgeadmin --regid=sgeadmin --init-groups "$@"; }
as_admin /usr/share/gridengine/scripts/init_cluster \
    "$SGE_ROOT" "$SGE_CELL" "$spool/db" sgeadmin >"$top/log/init" 2>&1

SGE_MASTER_PIDFILE=$top/pid/qmaster setsid sge_qmaster </dev/null >"$top/log/qmaster" 2>&1
conf() { as_admin /usr/lib/gridengine/qconf "$@" 2>>"$top/log/qconf"; }
wait_until 120 sge_qmaster conf -sconf || { cat "$top/log/qconf" >&2; exit 1; }
[ -s "$top/pid/qmaster" ] || cp "$spool/qmaster/qmaster.pid" "$top/pid/qmaster"
conf -am root >/dev/null || true
conf -as "$host" >/dev/null
conf -ah "$host" >/dev/null || true

set_to() { # FILE KEY VALUE: one line of a configuration
    sed -i "s|^$2 .*|$2 $3|" "$1"
}
cd "$top/conf"
conf -sconf | sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba' -e '}' >global
set_to global execd_spool_dir "$spool/execd"
set_to global load_report_time 00:00:02
set_to global min_uid 0
set_to global min_gid 0
set_to global gid_range 64400-64900
set_to global execd_params ENABLE_ADDGRP_KILL=true
set_to global reporting_params "accounting=true reporting=false flush_time=00:00:01 accounting_flush_time=00:00:00 joblog=false sharelog=00:00:00"
conf -Mconf global >/dev/null
conf -ssconf >scheduler
set_to scheduler schedule_interval 0:0:1
set_to scheduler flush_submit_sec 1
set_to scheduler flush_finish_sec 1
set_to scheduler schedd_job_info true
conf -Msconf scheduler >/dev/null
conf -sc | sed 's/^\(h_vmem .* MEMORY *<= *YES *\)NO *0 /\1YES 1G /' >complexes
cat >>complexes <<CONF
ngpus ngpus INT <= YES YES 0 0
ncpus ncpus INT <= YES NO 0 0
gpu_type gpu_type RESTRING == YES NO NONE 0
CONF
conf -Mc complexes >/dev/null
cat >smp <<CONF
pe_name smp
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule \$pe_slots
control_slaves FALSE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
CONF
conf -Ap smp >/dev/null
cat >host <<CONF
hostname $host
load_scaling NONE
complex_values slots=8,h_vmem=32G,ngpus=4,ncpus=32,gpu_type=v100
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
CONF
conf -Ae host >/dev/null

add_queue() { # NAME LONGEST COMPLEXES
    {
        printf '%s\n' "qname $1" "hostlist $host" "seq_no 0" "load_thresholds NONE" \
            "suspend_thresholds NONE" "nsuspend 1" "suspend_interval 00:05:00" "priority 0" \
            "min_cpu_interval 00:00:01" "processors UNDEFINED" "qtype BATCH INTERACTIVE" \
            "pe_list smp" "rerun TRUE" "slots 8" "tmpdir /tmp" "shell /bin/bash" \
            "shell_start_mode unix_behavior" "notify 00:00:05" "complex_values $3" \
            "initial_state default" "s_rt INFINITY" "h_rt $2"
        local key
        for key in ckpt_list prolog epilog starter_method suspend_method resume_method \
            terminate_method owner_list user_lists xuser_lists subordinate_list projects \
            xprojects calendar; do
            echo "$key NONE"
        done
        for key in cpu fsize data stack core rss vmem; do
            printf '%s\n' "s_$key INFINITY" "h_$key INFINITY"
        done
    } >"queue.$1"
    conf -Aq "queue.$1" >/dev/null
}
add_queue serial INFINITY NONE
add_queue short 12:00:00 ngpus=4
add_queue medium 48:00:00 ngpus=4
add_queue long 168:00:00 ngpus=4

setsid sge_execd </dev/null >"$top/log/execd" 2>&1
keep_pid() { cat "$spool"/execd/*/execd.pid >"$top/pid/execd" && [ -s "$top/pid/execd" ]; }
wait_until 120 sge_execd keep_pid
ready() { [ "$(qstat -f -q '*' | awk '/@/ && NF == 5' | wc -l)" -eq 4 ]; }
wait_until 120 "four queues that take jobs" ready
programs_of "$top/bin" gridengine-client
# not Debian's wrappers, each of which runs a compiler: 70 ms of CPU to learn SGE_ARCH
ln -sf /usr/lib/gridengine/q* "$top/bin"
echo "export PATH=$top/bin:$PATH_BEFORE"
for name in SGE_ROOT SGE_CELL SGE_QMASTER_PORT SGE_EXECD_PORT; do
    echo "export $name=${!name}"
done

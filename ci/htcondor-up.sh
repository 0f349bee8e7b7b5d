#!/bin/bash
# A real HTCondor on this machine, for the tests: all daemons, one node with simulated GPUs;
# on loopback, as root, on a Debian that has minihtcondor (13 on). Run it again for a fresh
# one; htcondor-down.sh ends it. It prints the line to source:
#
#     eval "$(ci/htcondor-up.sh)" && condor_status
#
# Root may look and administrate, but not submit: HTCondor runs no job of root's. The tests
# submit as WEIGH_RIG_AS.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/rig.sh"
need_root
if ! dpkg -s minihtcondor >/dev/null 2>&1 && ! apt-cache show minihtcondor >/dev/null 2>&1; then
    complain "this Debian has no package minihtcondor"
    exit 3
fi
need_packages minihtcondor
"$here/htcondor-down.sh"

top=$RIG/htcondor
export CONDOR_CONFIG=$top/condor_config
rm -rf "$top"
mkdir -p "$top"/{pid,log,run,lock,spool,execute,secrets}
chmod 755 "$RIG" "$top"
chown condor:condor "$top"/{pid,log,run,lock,spool,execute}
need_user "$RIG_USER"

cat >"$top/gpus" <<'SCRIPT' # prints what condor_gpu_discovery prints where there are GPUs
#!/bin/sh
echo 'DetectedGPUs="GPU-00000001, GPU-00000002, GPU-00000003, GPU-00000004"'
echo 'Common=[ Capability=7.0; DeviceName="Tesla V100-SXM2-32GB"; GlobalMemoryMb=32510; ]'
for i in 1 2 3 4; do echo "GPU_0000000$i=[ id=\"GPU-0000000$i\"; ]"; done
SCRIPT
chmod 755 "$top/gpus"
cat >"$CONDOR_CONFIG" <<CONF
RELEASE_DIR = /usr
LOCAL_DIR = $top
RUN = $top/run
LOG = $top/log
LOCK = $top/lock
SPOOL = $top/spool
EXECUTE = $top/execute
ETC = $top
BIN = /usr/bin
SBIN = /usr/sbin
LIB = /usr/lib/condor
LIBEXEC = /usr/libexec/condor
SHARE = /usr/share/condor
LOCAL_CONFIG_FILE =
LOCAL_CONFIG_DIR =
use ROLE: CentralManager
use ROLE: Submit
use ROLE: Execute
CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1:27618
NETWORK_INTERFACE = 127.0.0.1
BIND_ALL_INTERFACES = False

# who is who: the kernel vouches for local users
use SECURITY: recommended_v9_0
SEC_PASSWORD_DIRECTORY = $top/secrets
SEC_TOKEN_SYSTEM_DIRECTORY = $top/secrets
SEC_DEFAULT_AUTHENTICATION = REQUIRED
SEC_DEFAULT_AUTHENTICATION_METHODS = FS
ALLOW_DAEMON = condor@\$(UID_DOMAIN)
ALLOW_NEGOTIATOR = condor@\$(UID_DOMAIN)
ALLOW_ADMINISTRATOR = root@\$(UID_DOMAIN) condor@\$(UID_DOMAIN)
ALLOW_WRITE = *
ALLOW_READ = *

# a job starts and ends within a second or two
SCHEDD_INTERVAL = 2
SCHEDD_MIN_INTERVAL = 0
NEGOTIATOR_INTERVAL = 1
NEGOTIATOR_MIN_INTERVAL = 0
NEGOTIATOR_CYCLE_DELAY = 0
UPDATE_INTERVAL = 2
POLLING_INTERVAL = 1
STARTER_UPDATE_INTERVAL = 1
STARTER_INITIAL_UPDATE_INTERVAL = 1
SHADOW_QUEUE_UPDATE_INTERVAL = 1
PERIODIC_EXPR_INTERVAL = 2
JOB_START_DELAY = 0
# the tests' folders are in /tmp, of which each job would have its own
MOUNT_UNDER_SCRATCH =
RUNBENCHMARKS = 0

# the node; memory is polled, and a job over its request is held, as at many sites
NUM_CPUS = 8
MEMORY = 32000
MACHINE_RESOURCE_INVENTORY_GPUs = $top/gpus
MODIFY_REQUEST_EXPR_REQUESTMEMORY = RequestMemory
PROCD_MAX_SNAPSHOT_INTERVAL = 1
MachineMaxVacateTime = 10
use POLICY: HOLD_IF_MEMORY_EXCEEDED
CONF
condor_master -pidfile "$top/pid/master" >"$top/log/start" 2>&1
ready() { [ "$(condor_status -af TotalGPUs)" = 4 ] && condor_q; }
wait_until 120 "a node of HTCondor" ready
pgrep -x -P "$(<"$top/pid/master")" condor_schedd >"$top/pid/schedd"
echo "export CONDOR_CONFIG=$CONDOR_CONFIG"
echo "export WEIGH_RIG_AS=$RIG_USER"

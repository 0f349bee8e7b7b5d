#!/bin/bash
# A real Slurm on this machine, for the tests: a controller, three nodes with pretended GPUs,
# accounting; on loopback, as root, on Debian. Run it again for a fresh one; slurm-down.sh ends
# it. It prints the line to source:
#
#     eval "$(ci/slurm-up.sh)" && sinfo
#
# WEIGH_RIG          where it lives                       [/var/lib/weigh-rig]
# WEIGH_RIG_USER     a user that may submit beside root    [researcher]
# WEIGH_RIG_DB=0     no database: squeue is there, sacct is not
# WEIGH_RIG_CGROUP=0  memory is polled, as where no control group can be made
# WEIGH_RIG_LIMITS   EnforcePartLimits                     [ALL]
# WEIGH_RIG_MORE     further lines of slurm.conf             []
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/rig.sh"
need_root
with_db=${WEIGH_RIG_DB:-1}
packages=(munge slurmctld slurmd slurm-client)
[ "$with_db" = 0 ] || packages+=(slurmdbd mariadb-server)
need_packages "${packages[@]}"
"$here/slurm-down.sh"

top=$RIG/slurm
export SLURM_CONF=$top/etc/slurm.conf
control_port=27817 database_port=27819
host=$(hostname -s)
rm -rf "$top"
mkdir -p "$top"/{etc,log,pid,state,dev,spool/{cn1,cn2,cn3}}
chmod -R 755 "$top"
need_user "$RIG_USER"
need_loopback_name "$host"
# where 127.0.0.1 is all there is, Slurm takes the machine for one without IPv4
if command -v ip >/dev/null && [ "$(ip -4 -o addr show | wc -l)" -lt 2 ]; then
    ip addr add 127.0.0.2/8 dev lo
fi
for i in 0 1 2 3; do # the null device under other names: programs can open it
    mknod -m 666 "$top/dev/nvidia$i" c 1 3 2>/dev/null || : >"$top/dev/nvidia$i"
done

# ---- who is who
if ! munge -n >/dev/null 2>&1; then
    install -d -o munge -g munge -m 700 /etc/munge /var/log/munge /var/lib/munge
    install -d -o munge -g munge -m 755 /run/munge
    [ -s /etc/munge/munge.key ] || head -c 128 /dev/urandom >/etc/munge/munge.key
    chown munge:munge /etc/munge/munge.key
    chmod 400 /etc/munge/munge.key
    setpriv --reuid=munge --regid=munge --clear-groups munged </dev/null
    cp /run/munge/munged.pid "$top/pid/munged.pid"
fi

# ---- memory: by control group where one can be made, else by polling
version=$(slurmctld -V | sed 's/^[^0-9]*\([0-9]*\.[0-9]*\).*/\1/') # such as 22.05
since() { [ "$(printf '%s\n' "$1" "$version" | sort -V | head -n 1)" = "$1" ]; }
groups=${WEIGH_RIG_CGROUPS:-/sys/fs/cgroup} # where isolated.sh has put ours
probe=$groups/memory/weigh_rig_probe
if [ "${WEIGH_RIG_CGROUP:-1}" != 0 ] && mkdir "$probe" 2>/dev/null; then
    rmdir "$probe"
    tracking="ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup"
    {
        ! since 21.08 || echo CgroupPlugin=cgroup/v1 # 20.11 knows no other, and not the key
        since 24.05 || echo CgroupAutomount=no
    } >"$top/etc/cgroup.conf"
    cat >>"$top/etc/cgroup.conf" <<CONF
CgroupMountpoint=$groups
ConstrainRAMSpace=yes
ConstrainSwapSpace=no
ConstrainCores=no
ConstrainDevices=no
AllowedRAMSpace=100
MinRAMSpace=30
CONF
else
    tracking="ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherParams=OverMemoryKill,UsePss"
fi
accounting="AccountingStorageType=accounting_storage/none"
[ "$with_db" = 0 ] || accounting="AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=$database_port
AccountingStorageEnforce=associations,limits,qos"
[ "$with_db" = 0 ] || accounting+="
AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:v100"

node="NodeHostname=$host NodeAddr=127.0.0.1 CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8"
node+=" ThreadsPerCore=1 RealMemory=32000 State=UNKNOWN"
cat >"$SLURM_CONF" <<CONF
ClusterName=rig
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$control_port
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
CredType=cred/munge
AuthInfo=cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$top/state
SlurmdSpoolDir=$top/spool/%n
SlurmctldPidFile=$top/pid/slurmctld.pid
SlurmdPidFile=$top/pid/slurmd.%n.pid
SlurmctldLogFile=$top/log/slurmctld.log
SlurmdLogFile=$top/log/slurmd.%n.log
MpiDefault=none
SwitchType=switch/none
$tracking
JobAcctGatherFrequency=task=1
ReturnToService=2
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
KillWait=10
MinJobAge=600
CompleteWait=0
InactiveLimit=0
MessageTimeout=30
PriorityType=priority/basic
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
MaxArraySize=1001
MaxJobCount=20000
EnforcePartLimits=${WEIGH_RIG_LIMITS:-ALL}
JobRequeue=1
GresTypes=gpu
$accounting
NodeName=cn1 Port=27801 Gres=gpu:v100:4 Feature=v100 $node
NodeName=cn2 Port=27802 Gres=gpu:a100:4 Feature=a100 $node
NodeName=cn3 Port=27803 $node
PartitionName=short Nodes=cn[1-3] Default=YES MaxTime=00:30:00 DefaultTime=00:10:00 State=UP
PartitionName=long Nodes=cn[2-3] MaxTime=2-00:00:00 DefaultTime=01:00:00 State=UP
PartitionName=gpu Nodes=cn[1-2] MaxTime=04:00:00 DefaultTime=00:30:00 MaxMemPerNode=16000 State=UP
${WEIGH_RIG_MORE-}
CONF
cat >"$top/etc/gres.conf" <<CONF
AutoDetect=off
NodeName=cn1 Name=gpu Type=v100 File=$top/dev/nvidia[0-3]
NodeName=cn2 Name=gpu Type=a100 File=$top/dev/nvidia[0-3]
CONF

start_database() {
    local data=$top/mysql
    install -d -o mysql -g mysql -m 755 "$data"
    mariadb-install-db --no-defaults --user=mysql --datadir="$data" --skip-test-db \
        --auth-root-authentication-method=socket >"$top/log/mariadb-install.log" 2>&1
    setsid mariadbd --no-defaults --user=mysql --datadir="$data" --socket="$data/socket" \
        --pid-file="$data/mariadbd.pid" --skip-networking --skip-log-bin \
        --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0 \
        --innodb-doublewrite=0 --innodb-lock-wait-timeout=900 \
        >"$top/log/mariadbd.log" 2>&1 </dev/null &
    wait_until 120 mariadbd mariadb-admin --no-defaults -S "$data/socket" ping
    cat >"$top/etc/slurmdbd.conf" <<CONF
AuthType=auth/munge
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$database_port
CommunicationParameters=NoInAddrAny
SlurmUser=root
LogFile=$top/log/slurmdbd.log
PidFile=$top/pid/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
CONF
    chmod 600 "$top/etc/slurmdbd.conf" # slurmdbd insists
    MYSQL_UNIX_PORT=$data/socket setsid slurmdbd </dev/null >"$top/log/slurmdbd.out" 2>&1
    # sacctmgr would try for 20 seconds where nobody listens yet
    wait_until 120 slurmdbd bash -c "exec 3<>/dev/tcp/127.0.0.1/$database_port"
    wait_until 120 slurmdbd timeout 10 sacctmgr -n list cluster
    {
        sacctmgr -i -Q add cluster rig || true
        sacctmgr -i -Q add account lab Cluster=rig Description=lab Organization=lab
        sacctmgr -i -Q add user root,"$RIG_USER" Account=lab Cluster=rig
    } >>"$top/log/sacctmgr.log" 2>&1
}
[ "$with_db" = 0 ] || start_database

setsid slurmctld -c </dev/null >"$top/log/slurmctld.out" 2>&1
for name in cn1 cn2 cn3; do
    setsid slurmd -N $name </dev/null >"$top/log/slurmd.$name.out" 2>&1
done
idle() { [ "$(sinfo -h -N -p short -t idle -o %N | sort -u | wc -l)" -eq 3 ]; }
wait_until 120 "three idle nodes" idle
programs_of "$top/bin" slurm-client
echo "export SLURM_CONF=$SLURM_CONF"
echo "export PATH=$top/bin:$PATH_BEFORE"

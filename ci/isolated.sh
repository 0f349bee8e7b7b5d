#!/bin/bash
# Run a command in network, mount, process and host-name namespaces of its own:
#
#     ci/isolated.sh python -m pytest
#     ci/isolated.sh --dirty python -m pytest
#
# What it starts (schedulers, databases, users, files below /etc, /home and /var) ends with
# it and is not seen outside, so two test runs on one machine do not meet, and neither
# meets a cluster that is installed here. Without root or where namespaces are refused the
# command runs as it is, after one line on standard error.
#
# --dirty gives it a machine on which tests have failed: files of a GPU driver without a
# GPU, stores in all folders above, a disk for scratch, a user's settings, programs that
# claim to be a scheduler's, variables of a job.
set -eu
usage="usage: ci/isolated.sh [--dirty] COMMAND [ARG...]"

if [ "${1-}" != --inside ]; then
    dirty=
    if [ "${1-}" = --dirty ]; then
        dirty=yes
        shift
    fi
    [ $# -gt 0 ] || { echo "$usage" >&2; exit 2; }
    if [ "$(id -u)" -ne 0 ] || ! unshare -mnpuif --mount-proc true 2>/dev/null; then
        echo "${0##*/}: no namespaces of its own (needs root); running without" >&2
        [ -z "$dirty" ] || exit 3
        exec "$@"
    fi
    scratch=$(mktemp -d /tmp/weigh.XXXXXX)
    groups=$(basename "$scratch")
    trap 'rm -rf "$scratch"; find /sys/fs/cgroup/*/"$groups" -depth -type d -exec rmdir {} + 2>/dev/null' EXIT
    # every process inside ends with the first one
    unshare -mnpuif --mount-proc --kill-child=KILL "$0" --inside "$scratch" "$dirty" "$@"
    exit
fi

scratch=$2 dirty=$3
shift 3
mount --make-rprivate /
python3 - <<'PYTHON'
import fcntl, socket, struct
# iproute2 may not be installed
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    SIOCSIFFLAGS, IFF_UP = 0x8914, 1
    fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    # a second address: Slurm takes a machine with 127.0.0.1 alone for one without IPv4
    SIOCSIFADDR = 0x8916
    address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton("127.0.0.2"))
    fcntl.ioctl(sock, SIOCSIFADDR, struct.pack("16s", b"lo:1") + address)
PYTHON
chmod 755 "$scratch"
mkdir "$scratch/layers" "$scratch/tmp"
mount -t tmpfs -o mode=755 layers "$scratch/layers"
for folder in etc home run var; do
    mkdir -p "$scratch/layers/$folder" "$scratch/layers/.$folder"
    mount -t overlay overlay -o \
        "lowerdir=/$folder,upperdir=$scratch/layers/$folder,workdir=$scratch/layers/.$folder" \
        "/$folder" || echo "${0##*/}: /$folder is shared with the outside" >&2
done
mount -t tmpfs -o mode=1777 shm /dev/shm # files of other runs would count as a job's
rm -rf /run/munge # the socket of another munge
rm -rf /etc/weigh # settings of the site
# control groups have no namespace that Slurm could use: a group of our own in each hierarchy
for controller in memory freezer cpuset cpuacct devices; do
    group=/sys/fs/cgroup/$controller/$(basename "$scratch")
    mkdir "$group" 2>/dev/null || continue
    mkdir -p "$scratch/cgroup/$controller"
    mount --bind "$group" "$scratch/cgroup/$controller"
    export WEIGH_RIG_CGROUPS=$scratch/cgroup
done
# Debian's Grid Engine asks for it before each command, with 20 programs and a compiler
arch=/usr/share/gridengine/util/arch
if [ -x $arch ]; then
    printf '#!/bin/sh\necho %s\n' "$($arch)" >"$scratch/arch"
    chmod 755 "$scratch/arch"
    mount --bind "$scratch/arch" $arch
fi
hostname weigh-rig
printf '127.0.0.1 localhost weigh-rig\n::1 localhost\n' >/etc/hosts
chmod 1777 "$scratch/tmp"
export TMPDIR=$scratch/tmp WEIGH_ISOLATED=1

plant() { # a copy of this machine in which the files can be made, and a shell that enters it
    local root=$scratch/root folder name
    mkdir "$root" "$scratch/layers/root" "$scratch/layers/.root"
    mount -t overlay overlay -o \
        "lowerdir=/,upperdir=$scratch/layers/root,workdir=$scratch/layers/.root" "$root"
    for folder in proc sys etc home run var; do mount --rbind "/$folder" "$root/$folder"; done
    for folder in "$scratch" "$(cd "$(dirname "$0")/.." && pwd)"; do
        mount --rbind "$folder" "$root$folder"
    done
    mount -t tmpfs -o mode=755 dev "$root/dev"
    mknod -m 666 "$root/dev/ptmx" c 5 2 # looks for pts beside itself, not where it was bound
    for name in /dev/*; do
        if [ "$name" = /dev/ptmx ]; then
            continue
        elif [ -L "$name" ]; then
            cp -P "$name" "$root/dev"
        elif [ -d "$name" ]; then
            mkdir "$root$name" && mount --rbind "$name" "$root$name"
        else
            : >"$root$name" && mount --bind "$name" "$root$name"
        fi
    done
    for name in nvidiactl nvidia0 nvidia-uvm; do : >"$root/dev/$name"; done
    for folder in / /tmp "$scratch" "$scratch/tmp"; do
        mkdir -p "$root$folder/.weigh/records"
        echo '{"schema": "weigh.plan/1"}' >"$root$folder/.weigh/plan.json"
    done
    mkdir -p "$root/disk/scratch" "$scratch/config/weigh"
    echo 'headroom = "70%"' >"$scratch/config/weigh/config.toml"
    for name in sbatch squeue scontrol sinfo sacct qsub qstat qconf; do
        printf '#!/bin/sh\necho "%s: not configured" >&2\nexit 1\n' $name >"$root/usr/local/bin/$name"
        chmod 755 "$root/usr/local/bin/$name"
    done
    export XDG_CONFIG_HOME=$scratch/config WEIGH_LABEL=planted
    export SLURM_JOB_ID=4711 SLURM_CPUS_PER_TASK=1 CUDA_VISIBLE_DEVICES=0 OMP_NUM_THREADS=1
}
if [ -n "$dirty" ]; then
    plant
    set -- chroot "$scratch/root" env -C "$PWD" "$@"
fi
trap : INT TERM # the command's to handle; the first process must not leave before it
"$@"

#!/bin/bash
# Make a Debian of its own in a folder, with a scheduler in it:
#
#     ci/matrix-root.sh FOLDER SUITE PACKAGE...
#
# The packages come from the mirror that apt on this machine uses for Debian. FOLDER appears
# when it is complete; an existing one is left as it is. Run as root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/rig.sh"
[ $# -ge 3 ] || { echo "usage: ci/matrix-root.sh FOLDER SUITE PACKAGE..." >&2; exit 2; }
folder=$1 suite=$2
shift 2
[ ! -d "$folder" ] || exit 0
need_root
need_packages debootstrap patchelf

mirror=$(apt-get indextargets --format '$(REPO_URI)' \
    'Created-By: Packages' 'Label: Debian' 'Component: main' | head -n 1)
[ -n "$mirror" ] || { complain "apt here has no mirror of Debian"; exit 3; }
mirror=${mirror%/} # a mirror may refuse a doubled slash
eval "$(apt-config shell proxy Acquire::http::Proxy)"
[ -z "${proxy-}" ] || export http_proxy=$proxy

part=$folder.part
rm -rf "$part"
mkdir -p "$(dirname "$folder")"
if ! debootstrap --variant=minbase "$suite" "$part" "$mirror" >"$folder.log" 2>&1; then
    tail -n 3 "$folder.log" >&2
    complain "cannot get $suite"
    exit 3
fi
printf '#!/bin/sh\nexit 101\n' >"$part/usr/sbin/policy-rc.d" # no daemon starts by itself
chmod 755 "$part/usr/sbin/policy-rc.d"
# the index of sid expires where a mirror stands still
echo 'Acquire::Check-Valid-Until "false";' >"$part/etc/apt/apt.conf.d/90matrix"
[ -z "${proxy-}" ] || echo "Acquire::http::Proxy \"$proxy\";" >>"$part/etc/apt/apt.conf.d/90matrix"
install_inside='
    mount -t proc proc "$1/proc"
    part=$1
    shift
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
    chroot "$part" apt-get update -qq
    chroot "$part" apt-get install -y -qq --no-install-recommends \
        -o Dpkg::Options::=--force-unsafe-io "$@"
    chroot "$part" apt-get clean'
if ! unshare --mount --pid --fork --kill-child bash -euc "$install_inside" - "$part" \
    procps python3-minimal "$@" >>"$folder.log" 2>&1; then
    tail -n 3 "$folder.log" >&2
    complain "cannot install $* from $suite"
    exit 3
fi
rm -rf "$part"/var/lib/apt/lists/*
mv "$part" "$folder"

#!/bin/bash
# Make a Debian of its own in a folder, with a scheduler in it:
#
#     ci/matrix-root.sh FOLDER SUITE PACKAGE... [src:SOURCE/SUITE]
#
# SOURCE/SUITE takes the packages of one source from another suite. The packages come from
# the mirror that apt on this machine uses for Debian. FOLDER appears when it is complete;
# an existing one is left as it is. Needs root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/rig.sh"
inside=no
[ "${1-}" != --inside ] || { inside=yes; shift; }
[ $# -ge 3 ] || { echo "usage: ci/matrix-root.sh FOLDER SUITE PACKAGE..." >&2; exit 2; }
need_root
if [ $inside = no ]; then
    need_packages debootstrap patchelf # in-root.sh uses the latter
    [ ! -d "$1" ] || exit 0
    # what is mounted and started on the way ends with it
    exec unshare --mount --pid --fork --kill-child --mount-proc "$0" --inside "$@"
fi
folder=$1 suite=$2
shift 2

mirror=$(apt-get indextargets --format '$(REPO_URI)' \
    'Created-By: Packages' 'Label: Debian' 'Component: main' | sed -n 1p)
[ -n "$mirror" ] || { complain "apt here has no mirror of Debian"; exit 3; }
mirror=${mirror%/} # a mirror may refuse a doubled slash
eval "$(apt-config shell proxy Acquire::http::Proxy)"
[ -z "${proxy-}" ] || export http_proxy=$proxy

mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock" # two of us at a time: the second finds it made
flock 9
[ ! -d "$folder" ] || exit 0
part=$folder.part
rm -rf "$part"
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
# gridengine-master looks this machine's name up as it is installed
printf '127.0.0.1 localhost %s\n' "$(hostname)" >"$part/etc/hosts"
packages=(procps python3 parallel) # the tests use them
for word; do
    if [[ $word != src:*/* ]]; then packages+=("$word"); continue; fi
    echo "deb $mirror ${word#*/} main" >>"$part/etc/apt/sources.list"
    printf 'Package: %s\nPin: release n=%s\nPin-Priority: %s\n\n' \
        '*' "${word#*/}" 50 "${word%/*}" "${word#*/}" 995 >>"$part/etc/apt/preferences.d/matrix"
done
install() {
    mountpoint -q "$part/proc" || mount -t proc proc "$part/proc"
    chroot "$part" apt-get update -qq &&
        chroot "$part" apt-get install -y -qq --no-install-recommends \
            -o Dpkg::Options::=--force-unsafe-io "$@" &&
        chroot "$part" apt-get clean
}
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
if ! install "${packages[@]}" >>"$folder.log" 2>&1; then
    grep -E '^(E|W|dpkg): ' "$folder.log" | tail -n 3 >&2
    complain "cannot install $* from $suite"
    exit 3
fi
umount "$part/proc"
rm -rf "$part"/var/lib/apt/lists/*
mv "$part" "$folder"

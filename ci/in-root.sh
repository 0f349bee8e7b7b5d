#!/bin/bash
# Run a command in a root made by matrix-root.sh, with this checkout and its Python:
#
#     ci/isolated.sh ci/in-root.sh ROOT COMMAND [ARG...]
#
# Only within isolated.sh: the mounts end with its namespaces. ROOT itself is not changed;
# what is written to it lands in memory, and in TMPDIR for /tmp. The checkout, /proc, /sys
# and /dev are the machine's. The Python of .venv runs with this machine's C library, whatever ROOT has.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: ci/in-root.sh ROOT COMMAND [ARG...]" >&2; exit 2; }
[ "${WEIGH_ISOLATED-}" = 1 ] || { echo "in-root.sh: run it by ci/isolated.sh" >&2; exit 3; }
root=$(realpath "$1")
shift
checkout=$(cd "$(dirname "$0")/.." && pwd)

mount -t tmpfs -o mode=755 matrix /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o "lowerdir=$root,upperdir=/mnt/upper,workdir=/mnt/work" /mnt/root
root=/mnt/root
for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
mount --bind "$TMPDIR" "$root/tmp"
export TMPDIR=/tmp
if [ -n "${WEIGH_RIG_CGROUPS-}" ]; then
    mkdir "$root/mnt/cgroup"
    mount --rbind "$WEIGH_RIG_CGROUPS" "$root/mnt/cgroup"
    export WEIGH_RIG_CGROUPS=/mnt/cgroup
fi
cat /etc/hosts >"$root/etc/hosts"
chmod 755 "$root/root" # a user of the rig may run the Python that lies there

show() { # FOLDER...: make it visible inside, at the same path
    local folder
    for folder; do
        mkdir -p "$root$folder"
        mount --rbind "$folder" "$root$folder"
    done
}
show "$checkout"
python=$(realpath "$checkout/.venv/bin/python")
{ read -r libraries; read -r libpython; read -r modules; read -r -a homes; } < <("$python" - <<'PYTHON'
import sys
from sysconfig import get_config_var as var, get_path
print("/usr/lib/" + var("MULTIARCH"))
print(var("LIBDIR") + "/" + var("INSTSONAME"))
print(var("DESTSHARED"))
# where Python is Debian's own, of /usr only what is its
print(*([sys.base_prefix] if sys.base_prefix != "/usr" else
        {get_path("stdlib"), get_path("platstdlib")}))
PYTHON
)
show "${homes[@]}"
host=/opt/host # this machine's libraries
mkdir -p "$root$host" /mnt/python
mount --bind "$libraries" "$root$host"
loader=$(patchelf --print-interpreter "$python")
cp "$python" /mnt/python/python
patchelf --set-interpreter "$host/${loader##*/}" --force-rpath \
    --set-rpath "${libpython%/*}:$host" /mnt/python/python
# a library with a search path of its own would pass the interpreter's over
cp -r "$modules" /mnt/python/modules
find /mnt/python/modules -name '*.so' -exec patchelf --remove-rpath {} +
replace() { # FILE BY
    mkdir -p "$root${1%/*}"
    [ -e "$root$1" ] || : >"$root$1"
    mount --bind "$2" "$root$1"
}
mount --bind /mnt/python/modules "$root$modules"
replace "$python" /mnt/python/python
if [ "${libpython%.a}" = "$libpython" ] && [ -e "$libpython" ]; then
    cp "$libpython" /mnt/python/libpython
    patchelf --remove-rpath /mnt/python/libpython
    replace "$libpython" /mnt/python/libpython
fi
export PATH=$checkout/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset LC_ALL
export HOME=/root LANG=C.UTF-8
exec chroot "$root" env -C "$PWD" "$@"

#!/bin/bash
# Run a command as an ordinary user with an empty home, in a copy of these sources:
#
#     ci/isolated.sh ci/ordinary_user.sh python -m pytest
#
# Only inside ci/isolated.sh, as root: the user and the copy end with it. What root skips
# (root reads and writes all) runs so, and what only works for root fails. Without
# namespaces it runs nothing, after one line on standard error.
set -euo pipefail
sources=$(cd "$(dirname "$0")/.." && pwd)
user=weigh-ordinary
if [ "${WEIGH_ISOLATED-}" != 1 ]; then
    echo "${0##*/}: no user of its own without namespaces: not run" >&2
    exit 0
fi

copy() { # FOLDER: changes below it are only seen in here
    local layers
    layers=$(mktemp -d)
    mount -t tmpfs layers "$layers"
    mkdir "$layers/upper" "$layers/work"
    mount -t overlay overlay -o \
        "lowerdir=$1,upperdir=$layers/upper,workdir=$layers/work" "$1"
}

# always the same number: /tmp is that of the machine, and keeps what Java writes there
useradd --create-home --uid 59019 --shell /bin/bash "$user"
rm -rf "/tmp/hsperfdata_$user"
for path in "$sources" "$(readlink -f "$sources/.venv/bin/python")"; do
    while path=${path%/*} && [ -n "$path" ]; do # open to all; it may be below /root
        (($(stat -c 0%a "$path") & 1)) || { copy "$path" && chmod o+x "$path"; }
    done
done
copy "$sources"
cd "$sources"
chown "$user:" .
git -c safe.directory="*" ls-files -z --recurse-submodules | xargs -0 chown -h "$user:" --
# mypy and the import contract may write to theirs meanwhile
find . \( -path ./.venv -o -path ./.git -o -path ./.mypy_cache -o -path ./.import_linter_cache \) \
    -prune -o -type d -exec chown "$user:" {} +
chown -R "$user:" .git
exec setpriv --reuid="$user" --regid="$user" --init-groups env -i \
    HOME="/home/$user" USER="$user" LOGNAME="$user" SHELL=/bin/bash LANG=C.UTF-8 \
    PATH="$sources/.venv/bin:/usr/local/bin:/usr/bin:/bin" TMPDIR="$TMPDIR" \
    WEIGH_ISOLATED=1 ${WEIGH_FUZZ:+WEIGH_FUZZ="$WEIGH_FUZZ"} "$@"

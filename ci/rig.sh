# What both rigs share; sourced, never run. Everything a rig makes lies below one folder
# and on ports of its own: a cluster that this machine has already is left alone.

RIG=${WEIGH_RIG:-/var/lib/weigh-rig}
PATH_BEFORE=$PATH
RIG_USER=${WEIGH_RIG_USER:-researcher}

# another scheduler's programs of these names may stand first on PATH
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH

programs_of() { # FOLDER PACKAGE...: link their programs there
    local folder=$1 name
    shift
    mkdir -p "$folder"
    for name in $(dpkg -L "$@" | grep '^/usr/bin/.'); do ln -sf "$name" "$folder"; done
}

complain() { echo "${0##*/}: $*" >&2; }

need_root() { [ "$(id -u)" -eq 0 ] || { complain "needs root"; exit 3; }; }

apt_in_turn() { # ARG...: apt-get, which waits for dpkg's lock only, not for its own two
    local end=$((SECONDS + ${WEIGH_APT_PATIENCE:-300})) said code
    while :; do
        said=$(apt-get -o DPkg::Lock::Timeout=300 "$@" 2>&1)
        code=$?
        [[ $code -ne 0 && $said == *"Could not get lock"* && $SECONDS -lt $end ]] || break
        sleep 2
    done
    printf '%s\n' "$said"
    return $code
}

need_packages() { # missing ones are installed, where apt can
    local missing=() name
    for name; do dpkg -s "$name" >/dev/null 2>&1 || missing+=("$name"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || { complain "not installed: ${missing[*]}"; exit 3; }
    # maintainer scripts must not start daemons of the system
    local policy=/usr/sbin/policy-rc.d ours=
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
        ours=$policy
    fi
    export DEBIAN_FRONTEND=noninteractive
    local log; log=$(mktemp)
    if ! { apt_in_turn update -qq && apt_in_turn install -y -qq --no-install-recommends \
        -o Dpkg::Options::=--force-unsafe-io "${missing[@]}"; } >"$log" 2>&1; then
        rm -f $ours
        tail -n 5 "$log" >&2
        complain "cannot install ${missing[*]}"
        exit 3
    fi
    rm -f "$log" $ours
}

need_user() { id "$1" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$1"; }

need_loopback_name() { # both systems look the host's own name up, and it must be this machine
    local name=$1 old
    getent ahostsv4 "$name" | grep -q '^127\.' && return
    old=$(cat /etc/hosts) # written in place: containers mount that file
    printf '127.0.0.1 localhost %s\n%s\n' "$name" "$old" >/etc/hosts
}

wait_until() { # SECONDS WHAT COMMAND...
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $end ]; then
            complain "$what did not come up"
            "$@" >&2 || true
            return 1
        fi
        sleep 0.05
    done
}

runs() { # PID NAME: a zombie does not run, and another's process is none of ours
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1 # no process: it is a loop's
    [[ $stat == *"($2"*")"* ]] || return 1
    stat=${stat##*) }
    [ "${stat%% *}" != Z ]
}

end_daemon() { # PIDFILE NAME
    local pid
    [ -s "$1" ] || return 0
    read -r pid <"$1"
    if runs "$pid" "$2"; then
        kill "$pid"
        for _ in {1..200}; do runs "$pid" "$2" || break; sleep 0.05; done
        ! runs "$pid" "$2" || kill -9 "$pid"
    fi
    rm -f "$1"
}

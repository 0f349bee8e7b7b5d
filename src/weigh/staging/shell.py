"""The bash that stages. It needs no weigh; ``script`` writes the variables above it.

On a scratch disk, under a folder that only its owner may enter, each job has a folder
for each node and process namespace, so that whoever meets in it sees the others'
processes:

    lock          flock(1) of it parts those who come, copy or leave
    in/0, in/1    the inputs, renamed to ``in`` when they are all there
    task.ID       for each task a link to nowhere: boot, process, start of the process
    work.ID       for each task the folder that it runs in, with links to the inputs
    to.ID         for each task a link to where its results go
"""

PAYLOAD = "@PAYLOAD@"
WHEN_HOME = "@WHEN_HOME@"
LAST = "@LAST@\n"

BODY = r"""
say() { printf 'weigh: %s\n' "$*" >&2; }
shown() { printf '%q' "$1"; }
space() { df -Ph -- "$1" 2>/dev/null | awk 'NR == 2 { print $4 " free there" }'; }
fail() {  # say why, tidy, end
  say "$@"
  local code=125
  [ -z "$stopped" ] || code=$(code_of "$stopped")
  [ -z "$entered" ] || close
  exit "$code"
}
code_of() { echo $((128 + $(kill -l "$1"))); }

# bash runs a trap at once only while it waits: whatever takes time runs beside it
told() {
  [[ $1 != USR1 && $1 != XCPU ]] || say "the time limit is near"
  stopped=${stopped:-$1} again=1
  [ -z "$child" ] || tell
}
tell() {  # once: a second TERM would mean that there is no time to end
  [ "$told" != "$child" ] || return
  told=$child
  kill -TERM -- "-$child" 2>/dev/null
  kill_late "$child" >/dev/null 2>&1 9>&- &
}
kill_late() {
  for ((second = 0; second < grace + 5; second++)); do
    sleep 1
    kill -0 -- "-$1" || return
  done
  kill -KILL -- "-$1"
}
step() {
  [ -z "$stopped" ] || return 143
  local status
  set -m  # a process group of its own, so that all of it can be told
  "$@" </dev/null &
  child=$!
  set +m
  [ -z "$stopped" ] || tell  # by a signal that came before there was whom to tell
  again=1
  while [ -n "$again" ]; do
    again=
    wait "$child"
    status=$?
  done
  child=
  return "$status"
}

copy_in() {  # file or folder $1 as $2; links that lead out of the folder are followed
  exec 9>&- 2> >(sed -n 1,3p >&2)
  if [ ! -d "$1" ]; then
    cp -L --preserve=mode,timestamps -- "$1" "$2"
  elif [ -n "$rsync" ]; then
    rsync -rlpt --copy-unsafe-links --chmod=u+rwX -- "$1/" "$2/"
  else
    cp -RL --preserve=mode,timestamps -- "$1/." "$2/" && chmod -R u+rwX -- "$2"
  fi
}
copy_out() {  # what is in folder $1 into folder $2; a read-only folder cannot be moved
  exec 9>&- 2> >(sed -n 1,3p >&2)
  if [ -n "$rsync" ]; then
    rsync -rlpt --chmod=Du+rwx -- "$1/" "$2/"
  else
    cp -RP --preserve=mode,timestamps -- "$1/." "$2/" &&
      find "$2" -type d -exec chmod u+rwx -- {} +
  fi
}
discard() {
  chmod -R u+rwX -- "$@" 2>/dev/null
  rm -rf -- "$@"
}

# who is there: a process is known by the boot, its number and when it started
started() {  # in ticks since the boot; fails for a process that has ended
  local stat field
  { read -r -d '' stat <"/proc/$1/stat"; } 2>/dev/null
  stat=${stat##*) }
  case $stat in '' | [ZX]*) return 1 ;; esac
  for ((field = 3; field < 22; field++)); do stat=${stat#* }; done
  printf '%s' "${stat%% *}"
}
sign() { ln -s -- "$this_boot $1 $(started "$1")" "$2"; }
alive() {  # the process that link $1 names
  local boot process start
  read -r boot process start < <(readlink -- "$1" && echo)
  [ -n "$start" ] && [ "$boot" = "$this_boot" ] &&
    [ "$(started "$process")" = "$start" ]
}
made() { mkdir -m 700 -- "$1" 2>/dev/null || [ -d "$1" ]; }
hold() {  # the lock of folder $1; who had it may have taken the folder away
  local tries=0
  while [ -n "$locks" ]; do
    if ! made "$1" || ! { exec 9>>"$1/lock"; } 2>/dev/null; then
      ((++tries < 5)) || fail "cannot write to $(shown "$1"): $(space "$base")"
      continue
    fi
    flock -n 9 || {
      say "another task of this node has the inputs in hand: waiting for it"
      step flock 9
    } || fail "stopped by ${stopped:-flock}: the tasks did not run"
    [ "$1/lock" -ef /dev/fd/9 ] && return
  done
  made "$1" || fail "cannot write to $(shown "$1"): $(space "$base")"
}
tidy() {  # folder $1, which is held: all of it when no task is there any more
  local entry others='' kept=''
  for entry in "$1"/task.*; do
    if alive "$entry"; then others=1; else rm -f -- "$entry"; fi
  done
  [ -z "$others" ] || return 0
  discard "$1/in" "$1"/in.*
  for entry in "$1"/work.*; do
    [ ! -d "$entry" ] || kept=1
  done
  if [ -z "$kept" ]; then
    mv -- "$1" "$1.gone.$self" && discard "$1.gone.$self"
  elif [ "$1" != "$shared" ]; then
    say "results of an earlier job lie on $HOSTNAME in $(shown "$1")"
  fi
}
tidy_others() {  # what jobs that were killed left on this node
  local entry
  for entry in "$base"/*."$place"; do
    [ -n "$locks" ] && [ -d "$entry" ] && [ "$entry" != "$shared" ] || continue
    exec 9>>"$entry/lock" && flock -n 9 && [ "$entry/lock" -ef /dev/fd/9 ] &&
      step tidy "$entry"
  done
  exec 9>&-
}

# the inputs: once a node, and a link to each in every task's folder
each_input() {  # call $1 with the name of each input in folder $2, and the input
  local i entry
  for i in "${!places[@]}"; do
    if [ "${places[i]}" = . ]; then
      for entry in "$shared/in/$i"/* "$shared/in/$i"/.[!.]* "$shared/in/$i"/..?*; do
        [ ! -e "$entry" ] && [ ! -L "$entry" ] ||
          "$1" "$2/${entry##*/}" "$entry" "$2" || return
      done
    else
      "$1" "$2/${places[i]}" "$shared/in/$i" "$2" || return
    fi
  done
}
link_input() {
  if [ -e "$1" ] || [ -L "$1" ]; then
    [ -n "$resumed" ] && return
    fail "two inputs would have the name $(shown "$1")"
  fi
  mkdir -p -- "${1%/*}" && ln -s -- "$2" "$1"
}
unlink_input() {  # and the folders above it that are empty then, below $3
  local folder=${1%/*}
  [ "$(readlink -- "$1" && echo .)" = "$2"$'\n.' ] && rm -f -- "$1"
  while [ "$folder" != "$3" ] && rmdir -- "$folder" 2>/dev/null; do
    folder=${folder%/*}
  done
  return 0
}
stage_in() {
  local i fresh=$shared/in.$self
  [ ! -d "$shared/in" ] || return 0
  discard "$shared"/in.*
  mkdir -- "$fresh" || fail "cannot write to $(shown "$shared"): $(space "$shared")"
  for i in "${!sources[@]}"; do
    copy_one "${sources[i]}" "$fresh/$i" && continue
    local why
    why=$(why_not "${sources[i]}")
    discard "$fresh"
    fail "$why"
  done
  mv -- "$fresh" "$shared/in"
}
copy_one() {
  [ -e "$1" ] || return
  [ ! -d "$1" ] || mkdir -- "$2" || return
  step copy_in "$1" "$2"
}
why_not() {
  if [ -n "$stopped" ]; then
    echo "stopped by $stopped while inputs were copied: the tasks did not run"
  elif [ ! -e "$1" ]; then
    echo "input $(shown "$1") is not there (any more): the tasks did not run"
  else
    echo "cannot copy input $(shown "$1") to $(shown "$base") on $HOSTNAME:" \
      "$(space "$base"); the tasks did not run"
  fi
}

# the results: to a folder beside where they go, then there by renaming
send_back() {  # what is in folder $1, of task $2; $3 is whole or partial
  local fresh=$destination/.incoming-$2 partial=$destination/partial-$2
  each_input unlink_input "$1"
  if ! rmdir -- "$1" 2>/dev/null; then  # something is in it
    discard "$fresh"
    if ! mkdir -p -- "$fresh" || ! step copy_out "$1" "$fresh" ||
      ! "put_$3" "$fresh" "$partial"; then
      discard "$fresh"
      say "cannot copy the results to $(shown "$destination"):" \
        "$(space "$destination"); they are kept on $HOSTNAME in $(shown "$1")"
      return 1
    fi
    discard "$1"
  fi
}
put_whole() { merge "$1" "$destination"; }
put_partial() {
  discard "$1.old"
  [ ! -e "$2" ] || mv -- "$2" "$1.old" || return
  chmod "$(umask -S)" -- "$1" && mv -- "$1" "$2" || return
  discard "$1.old"
  say "the results so far are in $(shown "$2")"
}
merge() {  # each file of folder $1 into folder $2, by renaming
  local entry target
  for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    [ -e "$entry" ] || [ -L "$entry" ] || continue
    target=$2/${entry##*/}
    mv -fT -- "$entry" "$target" 2>/dev/null && continue
    if [ -d "$entry" ] && [ ! -L "$entry" ] && [ -d "$target" ]; then
      merge "$entry" "$target" || return
    else
      say "$(shown "$target") cannot be replaced"
      return 1
    fi
  done
  rmdir -- "$1"
}
rescue() {  # results of tasks of this job that were killed
  local entry id destination
  for entry in "$shared"/work.*; do
    id=${entry##*/work.}
    if [ ! -d "$entry" ] || alive "$shared/task.$id" ||
      alive "$shared/task.$id.run"; then
      continue
    fi
    say "task ${id%.*} did not bring its results back: now they are"
    destination=$(readlink -- "$shared/to.$id" && echo .)
    destination=${destination%$'\n.'}
    send_back "$entry" "${id%.*}" partial && rm -f -- "$shared/to.$id"
  done
}
bring_back() {  # what an earlier attempt at this task left
  local name from
  for name in "$label" $continues; do
    from=$destination/partial-$name
    [ -d "$from" ] || continue
    resumed=$from
    say "going on with the results so far: $(shown "$from")"
    step copy_out "$from" "$work" && return
    fail "cannot copy $(shown "$from") to $(shown "$work"): $(space "$work")"
  done
}

find_scratch() {
  local root
  for root in "${scratch[@]}"; do
    [ -n "$root" ] || continue
    [ -d "$root" ] || mkdir -m 700 -- "$root" 2>/dev/null
    [ -d "$root" ] && [ -w "$root" ] || continue
    # a folder or link that another user put there is not one to trust
    [ -n "$named" ] || [ -O "$root" ] || [ "$(stat -Lc %u -- "$root")" = 0 ] || continue
    base=$root/weigh-$UID
    break
  done
  [ -n "$base" ] || fail "no folder to write to on $HOSTNAME among" \
    "$(shown "${scratch[*]}") (name one with --scratch)"
  mkdir -m 700 -- "$base" 2>/dev/null
  if [ -L "$base" ] || { [ -e "$base" ] && [ ! -O "$base" ]; }; then
    fail "$(shown "$base") is not a folder of yours (choose another --scratch)"
  fi
  chmod 700 -- "$base" 2>/dev/null ||
    fail "cannot make $(shown "$base") on $HOSTNAME: $(space "$root")"
}
enter() {  # the folder that the job's tasks share on this node
  tidy_others
  hold "$shared"
  entered=1
  sign "$self" "$shared/task.$id" ||
    fail "cannot write to $(shown "$shared"): $(space "$shared")"
  rescue
  stage_in
  exec 9>&-
  if ! ln -s -- "$destination" "$shared/to.$id" || ! mkdir -m 700 -- "$work"; then
    fail "cannot write to $(shown "$shared"): $(space "$shared")"
  fi
  bring_back
  each_input link_input "$work" ||
    fail "cannot write to $(shown "$work"): $(space "$work")"
}
came_home() {  # the results of these tasks are where they belong
  @WHEN_HOME@
}
close() {  # from here on things are brought to their end, whatever else comes
  hurry=$stopped stopped=
  trap '' "${signals[@]}"
  cd -- "$base" || cd /
  if [ -n "$whole" ]; then finish; else discard "$work"; fi
  leave
}
finish() {
  if send_back "$work" "$label" "$whole"; then
    [ -z "$resumed" ] || [ "$whole$resumed" = "partial$destination/partial-$label" ] ||
      discard "$resumed"
    came_home || say "what came home could not be noted"
  elif [ "$code" -eq 0 ]; then
    code=125
  fi
}
leave() {
  entered=
  hold "$shared"
  [ -n "$hurry" ] || rescue
  rm -f -- "$shared/task.$id" "$shared/task.$id.run"
  [ -d "$work" ] || rm -f -- "$shared/to.$id"
  tidy "$shared"
  exec 9>&-
}

set +euf  # whatever the lines above have set
shopt -u failglob
case $destination in /*) ;; *) destination=$PWD/$destination ;; esac
base='' stopped='' child='' told='' again='' entered='' resumed='' hurry='' whole=''
for signal in "${signals[@]}"; do
  # shellcheck disable=SC2064 # the name as it is now
  trap "told $signal" "$signal"
done
self=$BASHPID
[ "$element_id" != undefined ] || element_id=  # Grid Engine's word for: no array
label=$job_id${element_id:+_$element_id}
rsync=$(command -v rsync)
this_boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null) || this_boot=-
namespace=$(readlink /proc/self/ns/pid)
namespace=${namespace//[!0-9]/}
place=$HOSTNAME.${namespace:-$self}
find_scratch
locks=$(command -v flock) && flock -sn "$base" true 2>/dev/null || locks=
[ -n "$locks" ] || place=$place.$self  # nothing can be shared: each task for itself
inputs=$(printf '%s\0' "${sources[@]}" | cksum)
shared=$base/$job_id.${inputs%% *}.$place
id=$label.$self
work=$shared/work.$id
mkdir -p -- "$destination" && [ -w "$destination" ] ||
  fail "cannot write results to $(shown "$destination"): the tasks did not run"
[ "${SLURM_JOB_NUM_NODES:-1}" -le 1 ] ||
  say "inputs are copied to the first of $SLURM_JOB_NUM_NODES nodes only"

enter
cd -- "$work" || fail "cannot enter $(shown "$work")"
tasks() {
  trap exit TERM  # the tasks are told as well: their exit code counts
  sign "$BASHPID" "$shared/task.$id.run"
  @PAYLOAD@
}
step tasks
code=$?
whole=whole
[ "$code" -eq 0 ] && [ -z "$stopped" ] || whole=partial
[ "$code" -ne 0 ] || [ -z "$stopped" ] || code=$(code_of "$stopped")
close
@LAST@
exit "$code"
"""

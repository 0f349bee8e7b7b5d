#!/bin/bash
# shellcheck disable=SC2154 # the lines above this part of a job script set the variables
#
# Copies inputs to a node's own disk, runs the tasks there and copies the results back.
# It needs no weigh. `script.py` writes the variables and the functions run_tasks,
# results_copied and at_end above the lines that follow the first empty line.
#
# On a scratch disk, under a folder that only its owner may enter, each job has one
# folder per node and process namespace, so that tasks in it see each other's processes:
#
#   lock          held with flock(1) by a task that enters, copies or leaves
#   in/0, in/1    the inputs, renamed to `in` when they are complete
#   list.0        per input: kind, size, time and name of each entry, as it was copied
#   task.ID       per task: a dangling link that names boot, process and start time
#   work.ID       per task: the folder that it runs in, with the inputs as real files
#   to.ID         per task: a link to the destination of its results

say() { printf 'weigh: %s\n' "$*" >&2; }
shown() { printf '%q' "$1"; }
space() { df -Ph -- "$1" 2>/dev/null | awk 'NR == 2 { print $4 " free there" }'; }
fail() {  # print why, clean up, exit
  say "$@"
  local code=125
  [ -z "$stopped" ] || code=$(code_of "$stopped")
  [ -z "$entered" ] || close
  exit "$code"
}
code_of() { echo $((128 + $(kill -l "$1"))); }

# bash runs a trap at once only while it waits, so each slow step runs in the background
on_signal() {
  [[ $1 != USR1 && $1 != XCPU ]] || say "the time limit is near"
  stopped=${stopped:-$1} again=1
  [ -z "$child" ] || forward
}
forward() {  # once: a second TERM would mean that there is no time left to exit
  [ "$notified" != "$child" ] || return
  notified=$child
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
  set -m  # a process group of its own, so that one signal reaches all of it
  "$@" </dev/null &
  child=$!
  set +m
  [ -z "$stopped" ] || forward  # a signal that came before the child existed
  again=1
  while [ -n "$again" ]; do
    again=
    wait "$child"
    status=$?
  done
  # a trapped signal as the child ends: bash has its exit code from the kernel, and loses it
  [ "$status" != -1 ] || status=$(code_of "$stopped")
  child=
  return "$status"
}

copy_in() {  # copy file or folder $1 to $2, and follow links that lead out of it
  exec 9>&- 2> >(sed -n 1,3p >&2)
  if [ ! -d "$1" ]; then
    cp -L --preserve=mode,timestamps -- "$1" "$2"
  elif [ -n "$rsync" ]; then
    rsync -rlpt --copy-unsafe-links --chmod=u+rwX -- "$1/" "$2/"
  else
    cp -RL --preserve=mode,timestamps -- "$1/." "$2/" && chmod -R u+rwX -- "$2"
  fi
}
copy_out() {  # copy the contents of folder $1 to $2; read-only folders become writable
  exec 9>&- 2> >(sed -n 1,3p >&2)
  if [ -n "$rsync" ]; then
    rsync -rlpt --force --chmod=Du+rwx -- "$1/" "$2/"
  else
    cp -RP --remove-destination --preserve=mode,timestamps -- "$1/." "$2/" &&
      find "$2" -type d -exec chmod u+rwx -- {} +
  fi
}
discard() {
  chmod -R u+rwX -- "$@" 2>/dev/null
  rm -rf -- "$@"
}

# a process is identified by the boot, its process id and its start time
started() {  # prints clock ticks since the boot; fails for a process that has ended
  local stat field
  { read -r -d '' stat <"/proc/$1/stat"; } 2>/dev/null
  stat=${stat##*) }
  case $stat in '' | [ZX]*) return 1 ;; esac
  for ((field = 3; field < 22; field++)); do stat=${stat#* }; done
  printf '%s' "${stat%% *}"
}
sign() { ln -s -- "$this_boot $1 $(started "$1")" "$2"; }
alive() {  # whether the process that link $1 names still runs
  local boot process start
  read -r boot process start < <(readlink -- "$1" && echo)
  [ -n "$start" ] && [ "$boot" = "$this_boot" ] &&
    [ "$(started "$process")" = "$start" ]
}
made() { mkdir -m 700 -- "$1" 2>/dev/null || [ -d "$1" ]; }
hold() {  # lock folder $1, with message $2 where it waits; the folder may be gone by then
  local tries=0
  while [ -n "$locks" ]; do
    if ! made "$1" || ! { exec 9>>"$1/lock"; } 2>/dev/null; then
      ((++tries < 5)) || fail "cannot write to $(shown "$1"): $(space "$base")"
      continue
    fi
    flock -n 9 || {
      [ -z "$2" ] || say "$2"
      step flock 9
    } || fail "stopped by ${stopped:-flock}: the tasks did not run"
    [ "$1/lock" -ef /dev/fd/9 ] && return
  done
  made "$1" || fail "cannot write to $(shown "$1"): $(space "$base")"
}
tidy() {  # remove the locked folder $1, unless a task still uses it
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
    say "results of an earlier job are on $HOSTNAME in $(shown "$1")"
  fi
}
tidy_others() {  # remove what killed jobs left on this node
  local entry
  for entry in "$base"/*."$place"; do
    if [ -z "$locks" ] || [ ! -d "$entry" ] || [ "$entry" = "$shared" ]; then
      continue
    fi
    exec 9>>"$entry/lock" && flock -n 9 && [ "$entry/lock" -ef /dev/fd/9 ] &&
      step tidy "$entry"
  done
  exec 9>&-
}

# the inputs: copied to the node once, and real files in the folder of every task: a
# task may copy, move, pack and change them like its own
place_input() {  # place input $2 as $1, which is in folder $3
  if [ -e "$1" ] || [ -L "$1" ]; then
    fail "two inputs would have the name $(shown "$1")"
  fi
  mkdir -p -- "${1%/*}" && step copy_input "$2" "$1"
}
copy_input() {  # share the disk's blocks or the files where a copy would be large
  exec 9>&- 2> >(sed -n 1,3p >&2)
  local kib how
  read -r kib _ < <(du -sk -- "$1")
  for how in --reflink=always --link; do
    # a file with two names is changed under both: small inputs are never shared so
    [ "$how" != --link ] || [ "${kib:-0}" -gt "$small_kib" ] || continue
    [ "$how" = --link ] || clones || continue
    cp -RP "$how" --preserve=mode,timestamps -- "$1" "$2" 2>/dev/null && return
    discard "$2"
  done
  cp -RP --preserve=mode,timestamps -- "$1" "$2"
}
clones() {  # whether files of this disk can share blocks
  local probe=$shared/clone.$self status
  echo >"$probe" && cp --reflink=always -- "$probe" "$probe.to" 2>/dev/null
  status=$?
  rm -f -- "$probe" "$probe.to"
  return "$status"
}
listed() {  # print the entries of folder $1, or the file $1, each ended by NUL
  if [ -d "$1" ] && [ ! -L "$1" ]; then
    (cd -- "$1" && find . -mindepth 1 \
      \( -type d -printf 'd %p\0' -o -printf '%y %s %T@ %p\0' \)) | LC_ALL=C sort -z
  else
    find "$1" -maxdepth 0 -printf '%y %s %T@\0' 2>/dev/null
  fi
}
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
take_inputs_out() {  # of folder $1: what a task changed or added stays, as a result
  local i place folder
  for i in "${!places[@]}"; do
    place=$1/${places[i]} folder=$1/${places[i]}
    [ -e "$shared/list.$i" ] || continue
    if [ -d "$place" ] && [ ! -L "$place" ]; then
      listed "$place" | LC_ALL=C comm -z -12 - "$shared/list.$i" |
        sed -z '/^d/d; s,^[^/]*/,./,' | (cd -- "$place" && xargs -0r rm -f -- 2>/dev/null)
      sed -z '/^d/!d; s/^d //' "$shared/list.$i" | LC_ALL=C sort -rz |
        (cd -- "$place" && xargs -0r rmdir -- 2>/dev/null)
    elif listed "$place" | cmp -s - "$shared/list.$i"; then
      rm -f -- "$place"
    fi
    while [ "${places[i]}" != . ] && [ "$folder" != "$1" ]; do
      [ ! -d "$folder" ] || rmdir -- "$folder" 2>/dev/null || break
      folder=${folder%/*}
    done
  done
}
name_changed_inputs() {  # a large input may be one file for all tasks of this node
  local i
  for i in "${!places[@]}"; do
    listed "$shared/in/$i" | cmp -s - "$shared/list.$i" ||
      say "$(shown "${places[i]}") was changed in place: the tasks on this node share" \
        "the files of large inputs (change a copy instead)"
  done
}

# links among the results must lead somewhere where the results are
settle_links() {  # in folder $1, without its inputs; sets `dangling` to the first
  local link target top
  dangling=
  top=$(realpath -- "$1" && echo .) top=${top%$'\n.'}
  while IFS= read -r -d '' link; do
    target=$(realpath -m -- "$link" && echo .) target=${target%$'\n.'}
    if [[ $target/ != "$top/"* ]]; then
      [ ! -e "$link" ] || continue
    elif [ -e "$link" ]; then
      ln -sfnrT -- "$target" "$link" && continue
    elif copy_linked "$link" "${target#"$top"}"; then
      continue
    fi
    leads_at_home "$link" "$1" ||
      dangling=${dangling:-$(shown "${link#"$1/"}") -> $(shown "$(readlink -- "$link")")}
  done < <(find "$1" -type l \( -lname '/*' -o -xtype l \) -print0)
}
copy_linked() {  # put a copy of the input that was at $2 in place of link $1
  local i
  for i in "${!places[@]}"; do
    local place=/${places[i]} entry=
    if [ "$place" = /. ]; then entry=$shared/in/$i$2
    elif [[ $2/ == "$place/"* ]]; then entry=$shared/in/$i${2#"$place"}; fi
    if [ -z "$entry" ] || [ ! -e "$entry" ]; then continue; fi
    rm -f -- "$1" && cp -RL --preserve=mode,timestamps -- "$entry" "$1"
    return
  done
  return 1
}
leads_at_home() {  # whether link $1 of folder $2 leads to what the destination has
  local target folder
  target=$(readlink -- "$1" && echo .) target=${target%$'\n.'}
  folder=${1%/*}
  [[ $target != /* ]] && [ -e "$(realpath -m -- \
    "$destination/${folder#"$2"}/$target")" ]
}
stage_in() {
  local i fresh=$shared/in.$self
  [ ! -d "$shared/in" ] || return 0
  discard "$shared"/in.*
  mkdir -- "$fresh" || fail "cannot write to $(shown "$shared"): $(space "$shared")"
  for i in "${!sources[@]}"; do
    copy_one "${sources[i]}" "$fresh/$i" &&
      listed "$fresh/$i" >"$shared/list.$i" && continue
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
    echo "input $(shown "$1") does not exist: the tasks did not run"
  else
    echo "cannot copy input $(shown "$1") to $(shown "$base") on $HOSTNAME:" \
      "$(space "$base"); the tasks did not run"
  fi
}

# the results: copied next to their destination, then renamed into it
send_back() {  # the contents of folder $1, of task $2; $3 is whole or partial
  local fresh=$destination/.incoming-$2 partial=$destination/partial-$2
  local put=put_$3
  take_inputs_out "$1"
  settle_links "$1"
  [ -z "$dangling" ] || put=put_partial
  if ! rmdir -- "$1" 2>/dev/null; then  # it is not empty
    discard "$fresh"
    if ! mkdir -p -- "$fresh" || ! step copy_out "$1" "$fresh" ||
      ! "$put" "$fresh" "$partial"; then
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
  say "partial results are in $(shown "$2")"
}
merge() {  # move each file of folder $1 into folder $2
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
rescue() {  # copy back the results of killed tasks of this job
  local entry id destination
  for entry in "$shared"/work.*; do
    id=${entry##*/work.}
    if [ ! -d "$entry" ] || alive "$shared/task.$id" ||
      alive "$shared/task.$id.run"; then
      continue
    fi
    say "task ${id%.*} ended without copying its results back: copying them now"
    destination=$(readlink -- "$shared/to.$id" && echo .)
    destination=${destination%$'\n.'}
    send_back "$entry" "${id%.*}" partial && rm -f -- "$shared/to.$id"
  done
}
bring_back() {  # copy in what an earlier attempt at this task left
  local name from
  for name in "$label" $continues; do
    from=$destination/partial-$name
    [ -d "$from" ] || continue
    resumed=$from
    say "continuing from partial results: $(shown "$from")"
    step copy_out "$from" "$work" && return
    fail "cannot copy $(shown "$from") to $(shown "$work"): $(space "$work")"
  done
}

find_scratch() {
  local root
  for root in "${scratch[@]}"; do
    [ -n "$root" ] || continue
    [ -d "$root" ] || mkdir -m 700 -- "$root" 2>/dev/null
    if [ ! -d "$root" ] || [ ! -w "$root" ]; then continue; fi
    # do not trust a folder or link that another user created
    [ -n "$named" ] || [ -O "$root" ] || [ "$(stat -Lc %u -- "$root")" = 0 ] || continue
    base=$root/weigh-$UID
    break
  done
  [ -n "$base" ] || fail "no writable folder on $HOSTNAME among" \
    "$(shown "${scratch[*]}") (set WEIGH_SCRATCH to one)"
  mkdir -m 700 -- "$base" 2>/dev/null
  if [ -L "$base" ] || { [ -e "$base" ] && [ ! -O "$base" ]; }; then
    fail "$(shown "$base") does not belong to you (set WEIGH_SCRATCH to another)"
  fi
  chmod 700 -- "$base" 2>/dev/null ||
    fail "cannot create $(shown "$base") on $HOSTNAME: $(space "$root")"
}
enter() {  # the folder that the job's tasks share on this node
  tidy_others
  hold "$shared" "another task on this node is copying the inputs: waiting for it"
  entered=1
  sign "$self" "$shared/task.$id" ||
    fail "cannot write to $(shown "$shared"): $(space "$shared")"
  rescue
  stage_in
  exec 9>&-
  if ! ln -s -- "$destination" "$shared/to.$id" || ! mkdir -m 700 -- "$work"; then
    fail "cannot write to $(shown "$shared"): $(space "$shared")"
  fi
  each_input place_input "$work" ||
    fail "cannot copy the inputs to $(shown "$work"): $(space "$work")"
  bring_back
}
close() {  # finish; further signals are ignored
  hurry=$stopped stopped=
  trap '' "${signals[@]}"
  cd -- "$base" || cd /
  if [ -n "$whole" ]; then finish; else discard "$work"; fi
  leave
}
finish() {
  name_changed_inputs
  if send_back "$work" "$label" "$whole"; then
    [ "$whole" = whole ] || dangling=
    if [ -n "$dangling" ]; then  # last of what is printed: status quotes it
      whole=partial code=125
      say "a result is a link to what does not exist: $dangling; the task failed"
    fi
    [ -z "$resumed" ] || [ "$whole$resumed" = "partial$destination/partial-$label" ] ||
      discard "$resumed"
    [ -n "$dangling" ] || results_copied ||
      say "could not record which results were copied back"
  elif [ "$code" -eq 0 ]; then
    code=125
  fi
}
leave() {
  entered=
  hold "$shared" ''
  [ -n "$hurry" ] || rescue
  rm -f -- "$shared/task.$id" "$shared/task.$id.run"
  [ -d "$work" ] || rm -f -- "$shared/to.$id"
  tidy "$shared"
  exec 9>&-
}

set +euf  # undo what the lines above may have set
shopt -u failglob
case $destination in /*) ;; *) destination=$PWD/$destination ;; esac
base='' stopped='' child='' notified='' again='' entered='' resumed='' hurry='' whole=''
dangling=''
small_kib=65536
for signal in "${signals[@]}"; do
  # shellcheck disable=SC2064 # expanded now, on purpose
  trap "on_signal $signal" "$signal"
done
self=$BASHPID
[ "$element_id" != undefined ] || element_id=  # Grid Engine's value outside arrays
label=$job_id${element_id:+_$element_id}
rsync=$(command -v rsync)
this_boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null) || this_boot=-
namespace=$(readlink /proc/self/ns/pid)
namespace=${namespace//[!0-9]/}
place=$HOSTNAME.${namespace:-$self}
find_scratch
locks=$(command -v flock) && flock -sn "$base" true 2>/dev/null || locks=
[ -n "$locks" ] || place=$place.$self  # no locks: nothing can be shared, each task works alone
inputs=$(printf '%s\0' "${sources[@]}" | cksum)
shared=$base/$job_id.${inputs%% *}.$place
id=$label.$self
work=$shared/work.$id
if ! mkdir -p -- "$destination" || [ ! -w "$destination" ]; then
  fail "cannot write results to $(shown "$destination"): the tasks did not run"
fi
[ "${SLURM_JOB_NUM_NODES:-1}" -le 1 ] ||
  say "inputs are copied to the first of $SLURM_JOB_NUM_NODES nodes only"

enter
cd -- "$work" || fail "cannot enter $(shown "$work")"
tasks() {
  trap exit TERM  # the tasks get the signal as well: their exit code counts
  sign "$BASHPID" "$shared/task.$id.run"
  run_tasks
}
step tasks
code=$?
whole=whole
[ "$code" -eq 0 ] && [ -z "$stopped" ] || whole=partial
[ "$code" -ne 0 ] || [ -z "$stopped" ] || code=$(code_of "$stopped")
close
at_end
exit "$code"

#!/bin/bash

# 25 elements of up to 4 tasks in parallel; written by weigh 1.0.
# You may edit it: only the scheduler reads it.

export WEIGH_DIR=/home/me/rl/.weigh
cd /home/me/rl || exit
plan=/home/me/rl/plan/ppo-sweep
job=${WEIGH_JOB_ID:-here}
own="$WEIGH_DIR/local/$job"

# after other jobs; kill -0 finds a zombie, which has ended
jobs="$WEIGH_DIR/local"
awaited() {
  cat "$jobs/$job/awaited" 2>/dev/null || echo '41 42'
}
have_ended() {
  for before; do
    [ -e "$jobs/$before/exit" ] ||
      { gone=$(cat "$jobs/$before/pid") &&
        ! kill -0 "$gone" 2>/dev/null; } ||
      return 1
  done
}
until
  these=$(awaited)
  have_ended $these && [ "$these" = "$(awaited)" ]
do
  sleep 1
done
# the scheduler starts this job also after one that failed
/home/me/env/bin/python -P -m weigh status --succeeded w0123456789ab 42 || exit

# the environment of the tasks
source /etc/profile
module load cuda/12 || exit
eval "$(conda shell.bash hook)" || exit
conda activate rl || exit
export A=1

# check for missing programs first
command -v ffmpeg >/dev/null ||
  { echo "weigh: not found on $(hostname):" ffmpeg >&2; exit 127; }
python -c 'import importlib.util, platform, sys
torch = importlib.util.find_spec("torch") and __import__("torch")
if torch and not torch.cuda.is_available():
    sys.exit(f"weigh: torch sees no GPU on {platform.node()}")
try:
    built = torch.cuda.get_arch_list() if torch and torch.version.cuda else []
    major, minor = torch.cuda.get_device_capability() if built else (0, 0)
    kinds = [(kind, divmod(int(number.rstrip("abcdef")), 10)) for kind, _, number
             in (name.partition("_") for name in built)]
except Exception:
    kinds = []
names = " ".join(built) if kinds else ""
if kinds and not any(wanted <= (major, minor) and (kind == "compute" or
                     wanted[0] == major) for kind, wanted in kinds):
    sys.exit(f"weigh: torch {torch.__version__} was built for {names}, and "
             f"{torch.cuda.get_device_name()} on {platform.node()} is "
             f"sm_{major}{minor}")' || exit 69
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

element() {
  trap 'echo "weigh: exit code $?"' EXIT
  element=$1 SECONDS=0
  on_signal() {
    [[ $1 != USR1 && $1 != XCPU ]] || echo "weigh: the time limit is near" >&2
    by=${by:-$1}
    [ -n "$tasks" ] || [ "$!" = "$before" ] || tasks=$!
    [ -n "$tasks" ] || exit 143
    [ -n "$ending" ] || kill -TERM "$tasks" 2>/dev/null
    ending=1 again=1
  }
  tasks= ending= again=1 by= before=$!
  for name in TERM INT USR1 USR2 XCPU; do trap "on_signal $name" "$name"; done
  /home/me/env/bin/python -P -m weigh exec --jobs 4 --grace 20 --time "$((21600 - SECONDS))s" \
  ${SLURM_RESTART_COUNT:+--forget-survivors} \
  --joblog "$plan/log/tasks_$element.joblog" "$plan/tasks_$element.txt" &
  tasks=$!
  until [ -z "$again" ]; do again=; wait "$tasks"; code=$?; done; [ "$code" != -1 ] || code=143
  exit "$code"
}

# one element after the other, or a few at a time
ended= worst=0
trap 'ended=1 again=1; kill -TERM $(jobs -p) 2>/dev/null' TERM INT HUP
for number in {0..24}; do
  while [ "$(jobs -pr | wc -l)" -ge 3 ]; do wait -n; done
  [ -z "$ended" ] || break
  [ ! -e "$own/cancelled_$number" ] || continue
  element "$number" >"$plan/log/${job}_$number.out" 2>&1 &
  all+=($!)
  [ -z "$ended" ] || kill -TERM $!
  [ ! -d "$own" ] || echo $! >"$own/element_$number"
done
for tasks in "${all[@]}"; do
  again=1
  until [ -z "$again" ]; do again=; wait "$tasks"; code=$?; done; [ "$code" != -1 ] || code=143
  [ "$code" -le "$worst" ] || worst=$code
done
exit "$worst"

#!/bin/bash
# condor_submit reads this too: to the line before the job, and its end
batch_name= <<'# ---- the job, for bash'
executable = $(SUBMIT_FILE)
batch_name = ppo-sweep
output = /home/me/rl/plan/ppo-sweep/log/$(ClusterId)_$(ProcId).out
error = /home/me/rl/plan/ppo-sweep/log/$(ClusterId)_$(ProcId).out
environment = "CONDOR_CLUSTER_ID=$(ClusterId) CONDOR_PROC_ID=$(ProcId)"
getenv = HOME, LANG, LOGNAME, PATH, SHELL, USER
should_transfer_files = NO
+WeighScript = $(true)
request_cpus = 4
request_memory = 8G
allowed_job_duration = 21600
request_gpus = 1
require_gpus = regexp("p100", DeviceName, "i")
periodic_remove = JobStatus == 5 && (HoldReasonCode == 34 || HoldReasonCode == 46 || HoldReasonCode == 47 || (HoldReasonCode == 21 && HoldReasonSubCode == 102))
concurrency_limits = weigh_job:769344
accounting_group = def-lab
notify_user = me@uni.edu
notification = Complete
requirements = Machine != "node07"
# ---- the job, for bash
true @=bash

# 25 elements of up to 4 tasks in parallel; written by weigh 1.0.
# You may edit it: only the scheduler reads it.

trap 'echo "weigh: exit code $?"' EXIT
export WEIGH_DIR=/home/me/rl/.weigh
cd /home/me/rl || exit
plan=/home/me/rl/plan/ppo-sweep
element="$CONDOR_PROC_ID"

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

# the tasks: a signal that ends this job is forwarded to them at once
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
  $(grep -qsx "NumShadowStarts = 1" "$_CONDOR_JOB_AD" || echo --forget-survivors) \
  --joblog "$plan/log/tasks_$element.joblog" "$plan/tasks_$element.txt" &
tasks=$!
until [ -z "$again" ]; do again=; wait "$tasks"; code=$?; done; [ "$code" != -1 ] || code=143
exit "$code"
@bash
true = true
queue 25

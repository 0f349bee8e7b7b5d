#!/bin/bash
#SBATCH --job-name=ppo-sweep
#SBATCH --output=/home/me/rl/plan/ppo-sweep/log/%A_%a.out
#SBATCH --array=0-24%3
#SBATCH --mem=8G
#SBATCH --cpus-per-task=4
#SBATCH --time=06:00:00
#SBATCH --gres=gpu:p100:1
#SBATCH --partition=gpu_long
#SBATCH --account=def-lab
#SBATCH --exclude=node07
#SBATCH --dependency=afterok:41:42
#SBATCH --kill-on-invalid-dep=no
#SBATCH --mail-user=me@uni.edu
#SBATCH --mail-type=END,FAIL

# 25 elements of up to 4 tasks in parallel; written by weigh 1.0.
# You may edit it: only the scheduler reads it.

trap 'echo "weigh: exit code $?"' EXIT
export WEIGH_DIR=/home/me/rl/.weigh
cd /home/me/rl || exit
plan=/home/me/rl/plan/ppo-sweep
element="${SLURM_ARRAY_TASK_ID:-0}"

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
  ${SLURM_RESTART_COUNT:+--forget-survivors} \
  --joblog "$plan/log/tasks_$element.joblog" "$plan/tasks_$element.txt" &
tasks=$!
until [ -z "$again" ]; do again=; wait "$tasks"; code=$?; done; [ "$code" != -1 ] || code=143
exit "$code"

#!/bin/bash
#SBATCH -N 1
#SBATCH -n 1
#SBATCH --mem=200M
#SBATCH --time=0-00:10
#SBATCH --array=2-6:2%2
#SBATCH --comment="grant 7"
#SBATCH --output=log/%x-%A_%a.out
set -e
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
line=$(sed -n "${SLURM_ARRAY_TASK_ID}p" experiments.txt)
cp experiments.txt "$scratch"
cd "$scratch"
eval "$line" "$@"
mkdir -p "$SLURM_SUBMIT_DIR/results"
cp -r result "$SLURM_SUBMIT_DIR/results/$SLURM_ARRAY_TASK_ID"

#!/bin/bash
#$ -S /bin/bash
#$ -q short
#$ -l h_vmem=500M
#$ -l h_rt=00:10:00
#$ -N tagger
#$ -t 2-6:2
#$ -tc 2
#$ -cwd
#$ -j y
source /etc/profile
set -e
line=$(sed -n "${SGE_TASK_ID}p" experiments.txt)
eval "$line" "$@"
mkdir -p results
mv result results/$SGE_TASK_ID

#!/bin/bash
#$ -cwd -N tag -j y
#$ -l h_vmem=4G,h_rt=01:30:00,ngpus=1 -pe smp 2
#$ -t 1-100:2 -tc 5
#$ -o logs/$JOB_ID.$TASK_ID.out
#$ -hold_jid 41,tag
source /etc/profile
case $SGE_TASK_ID in
  1) python tag.py "data_${SGE_TASK_ID}.csv" ;;
  *) awk "NR==$SGE_TASK_ID" inputs.txt | bash ;;
esac

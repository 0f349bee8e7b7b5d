#!/bin/bash
#SBATCH --job-name=train --mem=4G -t 1-12:00:00
#SBATCH --array=0-9,20-30:2%5
#SBATCH --gres=gpu:v100:1 --output="logs/%A_%a.out"
#SBATCH --dependency=afterok:41:42

module load cuda/12
source env/bin/activate
cd $HOME/work || exit
x=$(sed -n "${SLURM_ARRAY_TASK_ID}p" inputs.txt)
for lr in 1e-2 1e-3; do
  [[ -e "data_$SLURM_ARRAY_TASK_ID.csv" ]] && python train.py --lr $lr <in.txt >out.txt &
done
cat <<EOF | parallel -j 4 -a tasks.txt
a 'b' "c $USER"
EOF
wait

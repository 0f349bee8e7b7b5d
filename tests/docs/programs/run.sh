#!/bin/bash
#SBATCH --mem=500M
#SBATCH --time=00:10:00
#SBATCH --cpus-per-task=1
set -euo pipefail
python3 train.py

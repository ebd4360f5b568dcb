#!/bin/bash
#SBATCH --job-name=farrier
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=12:00:00
#SBATCH --requeue

# All tasks run the same command; JAX learns from SLURM who they are. With --resume the
# first start begins anew, and a later one goes on from the last checkpoint.
srun --kill-on-bad-exit=1 \
    farrier fit table.parquet --target y -o model.safetensors --resume --distributed

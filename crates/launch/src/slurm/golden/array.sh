#!/bin/sh
#SBATCH --job-name=plimsoll-waves
#SBATCH --partition=short
#SBATCH --array=0-2,5%2
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --time=2-00:01:00
#SBATCH --signal=B:TERM@60
#SBATCH --requeue
#SBATCH --cpu-freq=1400000
#SBATCH --chdir=/home/u
#SBATCH "--output=/home/u/50%% of it/.plimsoll/waves.chunks/%a.log"
#SBATCH --open-mode=append
#SBATCH --account=phys
#SBATCH "--comment=two words, \"quoted\""
# Each task runs one chunk of the study into a store of its own. One that is started again goes on from there.
folder='/home/u/50% of it/.plimsoll/waves.chunks'
program=/opt/plimsoll/bin/plimsoll
chunk=$SLURM_ARRAY_TASK_ID
if [ "$(cat "$folder/probe" 2>&1)" != 5f3a ]; then
    echo "$SLURMD_NODENAME does not see the files of $folder" >&2
    exit 71
fi
if [ ! -x "$program" ]; then
    echo "$SLURMD_NODENAME has no $program" >&2
    exit 72
fi
exec srun --nodes=1 --ntasks=1 --overlap --cpu-bind=none --mpi=none --input=none \
    "$program" campaign run '/home/u/my waves.toml' --set "program=./it's" --points "$folder/$chunk.points" --store "$folder/$chunk.sqlite"

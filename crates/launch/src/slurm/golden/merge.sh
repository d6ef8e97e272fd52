#!/bin/sh
#SBATCH --job-name=plimsoll-waves
#SBATCH --partition=short
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --time=00:30:00
#SBATCH --chdir=/home/u
#SBATCH "--output=/home/u/50%% of it/.plimsoll/waves.chunks/merge.log"
#SBATCH --open-mode=append
#SBATCH --account=phys
#SBATCH "--comment=two words, \"quoted\""
# Joins what the chunks have. A chunk without a store has not begun.
cd '/home/u/50% of it/.plimsoll/waves.chunks' || exit 71
set -- ./*.sqlite
[ -e "$1" ] || { echo 'no chunk has begun' >&2; exit 1; }
exec /opt/plimsoll/bin/plimsoll campaign merge /home/u/.plimsoll/waves.sqlite "$@"

"""Runs the project's rounds on a simulated cluster and lake, with faults that a seed decides.

python -m sluice.testing.simulation --seeds 1-1000      # run many
python -m sluice.testing.simulation --seed 42 --trace   # replay one, and read what happened
"""

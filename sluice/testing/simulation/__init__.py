"""A simulated cluster and lake: the project's own rounds, under a seed's faults and interleavings.

python -m sluice.testing.simulation --seeds 1-1000      # run many
python -m sluice.testing.simulation --seed 42 --trace   # replay one, and read what happened
"""

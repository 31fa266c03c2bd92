"""What a Fluss cluster answers, whichever it is: scenarios against any server, through the client.

A scenario asks and writes each answer down in a form that is the same everywhere: names in place of
ids, classes of errors. What a real Fluss 0.9.1 answers stands beside the question, as expected.
`python -m sluice.testing.conformance` plays them against several servers and prints a matrix.
"""

from sluice.testing.conformance import catalog, leases, log, tiering
from sluice.testing.conformance.stage import SCENARIOS, Answer, Stage, run

__all__ = ["SCENARIOS", "Answer", "Stage", "catalog", "leases", "log", "run", "tiering"]

"""What both kinds of listener share: who may call, how many at once, whose turn it is.

Begin with ``admission``. ``handlers`` has one function for each call, ``tokens`` and ``access`` say
who may call it, ``fair_turns`` who gets the next worker.
"""

"""The small files of a run under ``work_uri``, by which drivers and tasks tell each other what
happened.

    <work_uri>/<lease id>/<table id>-<tiering epoch>/plan.json
                                                     result-<attempt>.json
                                                     failure-<attempt>.json
                                                     size-<attempt>.json
                                                     keys-<attempt>-<table>.json

The acquire task writes the plan (``plan_file``), the driver writes a result or a failure, the
settle task reads them (begin with ``result``). The driver also writes a size, which extends the
time limit of the tier task (``copy_size``). Each try of the driver has its own ``attempt``. No file
contains a secret, except the one of keys, which lives as long as the round: renewed keys of the
lake's storage, for executors (``sluice.lake.storage.keys_file``). ``packs`` has the tables of one
Spark application, ``maintenance`` the files of runs that maintain tables.

Must not know: clusters, lakes, and how a round works.
"""

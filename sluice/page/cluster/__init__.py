"""What the page knows of a cluster: read in the background, kept small, shown as models.

Begin with ``cluster_reader`` (all tables) and ``detail_reader`` (what people look at). ``seen`` is
what was last read, ``health`` says whether a table needs a person, the models are what the JSON API
answers.

Must not know: requests and FastAPI's routes.
"""

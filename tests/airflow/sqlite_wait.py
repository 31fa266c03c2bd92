"""How long Airflow waits for the lock of its SQLite; read by Airflow's own processes.

Python's default of five seconds is too little for a busy machine: whoever waits longer ends.
"""

CONNECT_ARGS = {"timeout": 30}

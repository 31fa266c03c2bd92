"""Empty. Airflow looks for example DAGs of a provider in the module named like its distribution.

Without this module, Airflow 3.3 writes an error into the log of each task, unless ``load_examples``
is off (https://github.com/apache/airflow/issues/66305). The provider is ``sluice_airflow``.
"""

"""The pictures of Airflow and of the page in the documentation. Begin with ``page_shots``."""

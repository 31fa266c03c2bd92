"""What Spark and Airflow add to a round."""

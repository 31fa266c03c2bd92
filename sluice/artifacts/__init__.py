"""What a run needs in addition to Python packages: Java, jars, and files for spark-submit."""

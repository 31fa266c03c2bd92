"""What a run needs beside Python packages: Java, jars, and the files that spark-submit takes."""

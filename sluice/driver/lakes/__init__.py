"""Opens a lake in this process: a JVM on demand, its jars, and what doctor sees of it.

Begin with ``open_lake``; ``jvm`` starts and ends the JVM.
"""

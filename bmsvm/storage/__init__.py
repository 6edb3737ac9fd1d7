"""Files and directories that are never half written, and chains kept in them while they run.

It knows arrays and their names, and nothing of models: those are saved by ``bmsvm.persistence``.
"""

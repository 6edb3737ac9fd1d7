"""Commands of the command line: one module each, with ``run(options)``.

:mod:`bmsvm.cli` imports the module of a command when it runs, so that ``--help`` does not wait for
JAX.
"""

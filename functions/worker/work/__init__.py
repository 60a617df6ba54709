"""The shipped work: the package to replace by your own. The worker calls `perform` of work/perform.py."""

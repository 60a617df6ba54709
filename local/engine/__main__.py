"""Entry point of `python -m local.engine --token <any word>`; the token only marks the command line as ours."""

from local.engine.launcher import main

main()

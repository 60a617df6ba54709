"""`python -m dev.smoke`."""

from dev.smoke.main import main

main()

"""`python -m dev.smoke`."""

from dev.smoke.smoke_command import main

main()

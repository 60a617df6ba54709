"""`python -m smoke`."""

from smoke.main import main

main()

"""`python -m slotkeeper_cli`."""

from slotkeeper_cli.app import main

main()

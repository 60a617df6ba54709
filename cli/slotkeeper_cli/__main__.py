"""`python -m slotkeeper_cli`."""

from slotkeeper_cli.entry import main

main()

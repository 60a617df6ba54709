"""What is measured rather than tested: each module is a command of its own."""

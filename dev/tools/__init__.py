"""Set-up, deployment variants, signing of events, and function invocation."""

"""`make invoke`: call a function with a sample event, in the real Lambda runtime on this machine."""

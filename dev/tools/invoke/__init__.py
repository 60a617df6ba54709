"""`make invoke`: a function in the real Lambda runtime on this machine, called with one of the sample events."""

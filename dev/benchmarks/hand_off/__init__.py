"""From a release to the next start, and the share of slot time in use: the wake against polling by visibility."""

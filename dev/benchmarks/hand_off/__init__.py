"""From a release to the next start, and how full the slots are: the wake beside polling by visibility."""

"""How fast requests start in the deployed stack: after a release, from a backlog, with a free slot, in a burst."""

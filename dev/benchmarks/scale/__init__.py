"""Many processes and a standing queue in the simulation, and what that costs beside other designs."""

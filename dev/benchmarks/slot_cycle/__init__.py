"""A slot's cycle (reserve, confirm, release) next to bare writes."""

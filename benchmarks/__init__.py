"""Measurements of svcd: searches.py alone, the other modules beside something else."""

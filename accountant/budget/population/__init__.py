"""Populations, and the groups of cells that requests select."""

"""One file a page, or a few that belong together: its address, who may see it, what it shows."""

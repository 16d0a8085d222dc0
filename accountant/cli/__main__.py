"""``python -m accountant.cli``."""

from accountant.cli import main

main()

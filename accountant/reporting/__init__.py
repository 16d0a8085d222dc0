"""Facts to report model to HTML, JSON and CSV. Informs only; admits and blocks nothing."""

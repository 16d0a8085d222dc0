"""The demonstration: the real service, real pipelines, real noise, on a public survey.

``python -m accountant.demo`` runs it. The pipelines (``dashboard``, ``survey_team``, ``careless``)
are written to be read by whoever is going to write one.
"""

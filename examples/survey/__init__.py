"""The demonstration: the real service, real pipelines and real noise, on a public survey.

``python -m examples.survey`` runs it. ``pipelines.py`` is an example for authors of pipelines.
"""

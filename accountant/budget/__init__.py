"""Judgement, pure: populations, accounts (the fold), policy rules, decisions, replay."""

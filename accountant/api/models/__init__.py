"""The answers of the HTTP interface. The text beside a field's type is its description.

Handlers build these types, so mypy checks every answer. The OpenAPI document is made from them, and
the tests compare it with the answers of a running service. Spent amounts are rounded up, remaining
amounts down. An answer may gain fields in a later version.
"""

"""The answers of the HTTP interface: what each is, and what its fields mean.

Handlers build these, so mypy compares what they answer with what is promised here. The OpenAPI
document is made from these classes, and the tests compare it with what a running service answers.
Spent amounts are rounded up, remaining amounts down. An answer may gain fields in a later version.
The text beside a field's type is its description.
"""

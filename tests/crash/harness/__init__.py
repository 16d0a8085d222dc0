"""What the tests of disasters share: a service under test, clients that keep what they were told,
a checker, and the disasters themselves.

Nothing here knows the service from the inside but the checker, which reads the ledger.
"""

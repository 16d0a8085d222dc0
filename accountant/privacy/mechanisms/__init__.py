"""What each kind of randomised answer costs, derived from its parameters: one file a family,
``registry.py`` lists the kinds, ``price`` asks them.
"""

from accountant.privacy.mechanisms.amounts import Amount, plain, plain_amount
from accountant.privacy.mechanisms.base import MOST_INVOCATIONS, BaseMechanism
from accountant.privacy.mechanisms.pricing import Priced, Verdict, price
from accountant.privacy.mechanisms.registry import KINDS, PLAIN, Mechanism
from accountant.privacy.mechanisms.relations import Relation
from accountant.privacy.mechanisms.sparse_vector import SparseVector

__all__ = [
    "KINDS",
    "MOST_INVOCATIONS",
    "PLAIN",
    "Amount",
    "BaseMechanism",
    "Mechanism",
    "Priced",
    "Relation",
    "SparseVector",
    "Verdict",
    "plain",
    "plain_amount",
    "price",
]

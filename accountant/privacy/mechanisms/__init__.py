"""What each kind of randomised answer costs, derived from its parameters: one file a family,
``registry.py`` lists the kinds, ``price`` asks them.
"""

from accountant.privacy.mechanisms.amounts import Amount, plain
from accountant.privacy.mechanisms.base import BaseMechanism
from accountant.privacy.mechanisms.pricing import Priced, Verdict, price
from accountant.privacy.mechanisms.registry import KINDS, Mechanism
from accountant.privacy.mechanisms.relations import Relation
from accountant.privacy.mechanisms.sparse_vector import SparseVector

__all__ = [
    "KINDS",
    "Amount",
    "BaseMechanism",
    "Mechanism",
    "Priced",
    "Relation",
    "SparseVector",
    "Verdict",
    "plain",
    "price",
]

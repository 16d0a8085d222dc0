"""OpenDP; cannot see measurements that are run bare, unless ``strict()``, nor on which data.

::

    import opendp.prelude as dp
    from accountant.adapters.opendp import paying

    context = dp.Context.compositor(
        data=answers,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0),
        split_evenly_over=2,
    )
    paying(context, ledger, "visits", purpose="weekly dashboard")
    noisy = context.query().count().laplace().release()     # asks, draws, commits

Each release asks for the mechanisms that it runs, with their parameters, before OpenDP draws; a
refusal leaves OpenDP's budget as it was. ``mechanisms_of`` returns them for any measurement, and
``invoke`` runs one outside of a context. What is not recognised is declared by OpenDP's own map.

``KNOWN_WRONG`` lists where versions of OpenDP charge less than they lose, and what is done.
"""

from accountant.adapters.opendp.measurements import mechanisms_of
from accountant.adapters.opendp.releases import Exceeded, Unpaid, invoke, paying, strict
from accountant.adapters.opendp.wrong import KNOWN_WRONG, WrongCharge, WrongMap

__all__ = [
    "KNOWN_WRONG",
    "Exceeded",
    "Unpaid",
    "WrongCharge",
    "WrongMap",
    "invoke",
    "mechanisms_of",
    "paying",
    "strict",
]

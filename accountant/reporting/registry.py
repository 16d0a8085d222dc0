"""An entry for the public registry of deployments of differential privacy, as YAML.

The fields are those of github.com/opendp/deployments-registry-data. What the ledger knows is filled
in; what only people know is left empty, and the file names it first. Amounts are those that are
promised, or, where more was spent, those that still hold; rounded up.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import yaml

from accountant.budget.errors import Invalid
from accountant.privacy.units import INFINITE
from accountant.reporting.schema import DatasetFacts, PopulationFacts, Report, Standing
from accountant.reporting.words import shortened

LOCAL: Final = frozenset({"randomized_response", "forced_response", "unary_encoding"})
"""Kinds of mechanisms that run where the data of one person are."""
BY_PEOPLE: Final = (
    "deployment.basic.data_curators",
    "deployment.basic.description",
    "deployment.basic.intended_use",
    "deployment.basic.data_product_type",
    "deployment.basic.data_product_region",
    "deployment.basic.data_product_sector",
    "deployment.basic.publication_date",
    "deployment.dp_variant.data_domain",
    "deployment.dp_variant.unprotected_quantities",
    "deployment.deployment_model.trust_assumptions",
    "deployment.deployment_model.data_source_type",
    "deployment.deployment_model.access_type",
    "deployment.implementation.preprocessing_and_hyperparameter_tuning",
    "deployment.implementation.post_processing",
    "deployment.implementation.justification",
    "deployment.administrative.registry_authors",
)
"""The fields that people fill in."""
_HEAD: Final = """\
# A draft for the registry of deployments of differential privacy (tier 3), from event {last} of the
# ledger {ledger}. People have to fill in, and then to read all of it again:
{fields}
"""


def registry_entry(report: Report, dataset: str) -> str:
    """Return the entry of a dataset. Raise Invalid for a dataset that is not registered."""
    people = report.population
    data = next((one for one in report.datasets if one.id == dataset), None)
    if people is None or data is None:
        text = f"no dataset of {report.ledger_name} is called {dataset!r}"
        raise Invalid("unknown-dataset", text)
    standing = next(
        (s for s in report.limits if (s.rule, s.dataset) == (data.rule, data.rule_scope)), None
    )
    document = _document(report, people, data, standing)
    fields = "\n".join(f"# - {name}" for name in BY_PEOPLE)
    head = _HEAD.format(last=report.ledger.last_sequence, ledger=report.ledger_name, fields=fields)
    return head + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def _document(
    report: Report, people: PopulationFacts, data: DatasetFacts, standing: Standing | None
) -> dict[str, Any]:
    name = shortened(data.name, 200)
    return {
        "url_slug": f"{report.ledger_name}-{data.id}".replace(".", "_"),
        "deployment": {
            "basic": {
                "name": name,
                "data_curators": [{"data_curator_name": data.owner or "", "data_curator_type": ""}],
                "description": "",
                "intended_use": "",
                "data_product_type": "",
                "data_product_region": "",
                "data_product_sector": "",
                "publication_date": "",
            },
            "dp_variant": {
                "variant_name": _variant(standing),
                "data_domain": "",
                "unprotected_quantities": "",
            },
            "privacy_loss": {
                "privacy_unit": people.privacy_unit,
                "privacy_unit_details": _unit(people),
                "privacy_parameters": _parameters(standing),
                "privacy_parameters_details": _details(standing),
            },
            "deployment_model": {
                "model_name": _model(data),
                "trust_assumptions": "",
                "release_type": "One release" if data.booked.requests == 1 else "Many releases",
                "release_type_details": _released(standing),
                "data_source_type": "",
                "access_type": "",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": "",
                "mechanisms": _mechanisms(data),
                "composition": _composition(report, standing),
                "post_processing": "",
                "justification": "",
            },
            "administrative": {"status": "Draft", "registry_authors": [""], "tier": 3},
        },
    }


def _unit(people: PopulationFacts) -> str:
    return " ".join(filter(None, (people.neighbouring_in_words, people.membership_in_words)))


def _variant(standing: Standing | None) -> str:
    if standing is None:
        return ""
    return "Pure DP" if not Decimal(standing.limit.delta) else "Approximate DP"


def _parameters(standing: Standing | None) -> dict[str, float]:
    if standing is None:
        return {}
    epsilon, delta = standing.limit.epsilon, standing.limit.delta
    if standing.relaxed:
        epsilon = standing.relaxed
    if standing.status == "over":
        epsilon, delta = standing.total.sum_of_epsilons, standing.total.own_delta
    if INFINITE in (epsilon, delta):
        return {}
    found = {"epsilon": float(epsilon)}
    return found | ({"delta": float(delta)} if Decimal(delta) else {})


def _details(standing: Standing | None) -> str:
    if standing is None:
        return "No limit is in force: nothing is promised."
    total = standing.total
    if INFINITE in (total.together, total.held_delta):
        return "Some of what was released has no bound: nothing is promised any more."
    spent = f"Epsilon {total.together}, delta {total.held_delta} is spent or reserved so far."
    if standing.status == "over":
        spent = (
            f"The limit of {standing.limit.epsilon} was exceeded; the plain sum of all charges "
            "still holds."
        )
    over = f" Counted over {standing.window}." if standing.window else ""
    return f"Rule {standing.rule} of the policy. {spent}{over}"


def _released(standing: Standing | None) -> str:
    if standing is None:
        return ""
    acts = "is refused" if standing.action == "block" else "is let through and flagged"
    text = f"What would bring the loss above epsilon {standing.limit.epsilon} {acts}"
    if standing.window is None:
        return f"{text}; the limit does not refresh."
    return f"{text}. It counts over {standing.window}, and bounds no longer time."


def _model(data: DatasetFacts) -> str:
    local = {one.name in LOCAL for one in data.by_kind}
    return {frozenset({True}): "Local", frozenset({True, False}): "Varies"}.get(
        frozenset(local), "Central"
    )


def _mechanisms(data: DatasetFacts) -> str:
    if not data.by_kind:
        return "None was charged yet."
    each = (f"{one.name or 'not named'}: {one.requests}" for one in data.by_kind)
    return (
        f"Requests by kind of mechanism: {'; '.join(each)}. The ledger charges what pipelines "
        "state of their mechanisms; it does not draw the noise."
    )


def _composition(report: Report, standing: Standing | None) -> str:
    if standing is None:
        return "Sums of all charges are kept for each subject group."
    found = next((one for one in report.formulas if one.gate == standing.gate), None)
    formula = f": {found.formula}. {found.source}" if found else ""
    return (
        f"Charges to a person add up over time by the filter {standing.gate}{formula} People of "
        "different subject groups are charged apart (parallel composition)."
    )

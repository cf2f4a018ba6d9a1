"""Which refusals by the eviction API come from a budget; the texts are those of a Kubernetes 1.35 API server."""

from typing import Any

import pytest

from taint_eviction.core.events import Block, BlockReason
from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.kube.answers import Refusal
from taint_eviction.kube.evictions import block_of, eviction_body

WOULD_VIOLATE = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
TOO_BIG = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
NEGATIVE = "pdb disruptions allowed is negative"
NO_RIGHT = (
    'pods "web" is forbidden: User "u" cannot create resource "pods/eviction" in API group "" in the namespace "shop"'
)
ENDING = 'pods "web" is forbidden: unable to create new content in namespace shop because it is being terminated'
UNSURE = "The disruption budget web.b-1 does not allow evicting pods currently"


def by_cause(message: Any, reason: str = "DisruptionBudget") -> Refusal:
    """Make the Status of a 429 that an eviction gets."""
    causes = [{"reason": reason, "message": message}]
    return Refusal("TooManyRequests", WOULD_VIOLATE, {"causes": causes})


def forbidden(why: str, kind: str = "poddisruptionbudget", name: Any = "b") -> Refusal:
    """Make the Status of a 403 in a budget's name."""
    message = f'{kind}.policy "{name}" is forbidden: {why}'
    return Refusal("Forbidden", message, {"name": name, "group": "policy", "kind": kind})


def test_an_eviction_names_its_pod_by_uid_and_leaves_it_its_grace_period() -> None:
    """The body has the UID as its precondition and sets no grace period."""
    assert eviction_body(PodRef(NamespacedName("shop", "web"), "u")) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "shop", "name": "web"},
        "deleteOptions": {"preconditions": {"uid": "u"}},
    }


@pytest.mark.parametrize(
    ("status", "refusal", "reason", "budget"),
    [
        (429, by_cause("The disruption budget b needs 1 healthy pods and has 0 currently"), BlockReason.BUDGET, "b"),
        (429, by_cause(UNSURE), BlockReason.BUDGET, "web.b-1"),
        (429, by_cause(f"{UNSURE} (Paused): by hand"), BlockReason.BUDGET, "web.b-1"),
        (429, by_cause(f'{UNSURE} because it failed sync: found no controller ref for pod "b1"'), BlockReason.BUDGET,
         "web.b-1"),
        (429, by_cause("The disruption budget b is still being processed by the server."), BlockReason.BUDGET_NOT_READY,
         "b"),
        (429, by_cause("in words of a version to come"), BlockReason.BUDGET, ""),
        (429, by_cause(None), BlockReason.BUDGET, ""),
        (403, forbidden(TOO_BIG), BlockReason.BUDGET_OVERLOADED, "b"),
        (403, forbidden(NEGATIVE), BlockReason.BUDGET_NEGATIVE, "b"),
        (403, forbidden(NEGATIVE, name=None), BlockReason.BUDGET_NEGATIVE, ""),
        (500, Refusal("", SEVERAL, {}), BlockReason.SEVERAL_BUDGETS, ""),
    ],
)  # fmt: skip
def test_a_budgets_refusal_is_a_block(status: int, refusal: Refusal, reason: BlockReason, budget: str) -> None:
    """The block has the budget's name where the server gives it."""
    assert block_of(status, refusal) == Block(reason, budget)


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (429, Refusal("", "Too many requests, please try again later.", {})),
        (429, Refusal("TooManyRequests", WOULD_VIOLATE, {"causes": ["DisruptionBudget", None]})),
        (429, by_cause("The disruption budget b needs 1 healthy pods and has 0 currently", reason="Other")),
        (503, by_cause("The disruption budget b needs 1 healthy pods and has 0 currently")),
        (403, Refusal("Forbidden", NO_RIGHT, {"name": "web", "kind": "pods"})),
        (403, Refusal("Forbidden", ENDING, {"name": "web", "causes": [{"reason": "NamespaceTerminating"}]})),
        (403, forbidden(NEGATIVE, kind="pods")),
        (403, forbidden("by a webhook")),
        (429, Refusal("TooManyRequests", 'admission webhook "w" denied the request: not now', {})),
        (500, Refusal("InternalError", "an error on the server", {})),
        (504, Refusal("Timeout", 'Timeout: couldn\'t update PodDisruptionBudget "b" due to conflicts', {})),
        (404, Refusal("NotFound", 'poddisruptionbudgets.policy "b" not found', {"name": "b"})),
        (409, Refusal("Conflict", SEVERAL, {})),
        (201, Refusal("", "", {})),
    ],
)
def test_all_other_refusals_are_no_blocks(status: int, refusal: Refusal) -> None:
    """A busy server, missing rights, a terminating namespace or a webhook may refuse, or seem to be a budget."""
    assert block_of(status, refusal) is None

"""The label, the selector and the annotation of the children of TensorBoards. Pure."""

from __future__ import annotations

from typing import Final

from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME

OPERATOR: Final = "tensorboard-controller"
"""The value of the label by which controllers know their children. It differs from that of replicas, so that no TensorBoard is
ever counted, adopted or cleaned up as a replica."""
SELECTOR: Final = f"{LABEL_OPERATOR_NAME}={OPERATOR}"
HASH_ANNOTATION: Final = "training.kubeflow.org/tensorboard-hash"
"""The hash of the specification that a Deployment was last given: the API server stores some of it in another form."""

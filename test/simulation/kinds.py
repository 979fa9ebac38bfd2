"""The resources of the simulated clusters: those of the kit's model, and TFJobs."""

from typing import Final

from kit.model.kinds import KINDS, Kind
from tfjob_operator.api.v1.constants import TFJOBS

TFJOB_KIND: Final = Kind(TFJOBS, status=True, custom=True, unconditional=False)
KINDS_WITH_TFJOBS: Final = (*KINDS, TFJOB_KIND)

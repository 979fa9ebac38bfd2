"""Why a job does not run: makes what was read about it into a ranked list of causes, with evidence and advice. Pure."""

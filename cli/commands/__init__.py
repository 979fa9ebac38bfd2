"""The commands of `kubectl tfjob`, one module each. Their names end in an underscore, since some are Python keywords."""

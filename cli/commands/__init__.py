"""The verbs of `kubectl tfjob`, a module each. They end in an underscore, since some are words of Python."""

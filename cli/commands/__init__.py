"""The commands of `kubectl tfjob`, one module each.

Module names end in an underscore, since some commands are Python keywords.
"""

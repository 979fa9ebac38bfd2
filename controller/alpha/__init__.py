"""The controller of jobs in the alpha dialect, alongside that of `controller.tfjob` in the same manager."""

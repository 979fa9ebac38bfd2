"""The controller of jobs in the alpha dialect: a second controller beside that of `controller.tfjob`, in the same manager."""

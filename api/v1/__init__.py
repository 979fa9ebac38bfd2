"""kubeflow.org/v1: the hub version of TFJob. Values and pure functions; no I/O."""

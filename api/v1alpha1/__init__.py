"""The alpha dialect: `replicaSpecs`, of kubeflow.org and tensorflow.org in v1alpha1. Values and pure functions; no I/O."""

"""The alpha dialect: jobs with `replicaSpecs` in v1alpha1 of kubeflow.org and tensorflow.org.

Values and pure functions; no I/O.
"""

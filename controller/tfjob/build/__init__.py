"""The manifests of a TFJob's children. Pure, and independent of `plan`."""

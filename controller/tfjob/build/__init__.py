"""The bodies of a TFJob's children, as they are sent to the API server. Pure, and independent of `plan`."""

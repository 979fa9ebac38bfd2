"""What children of a TFJob look like: the bodies that are sent to the API server. Pure, as `decide` is."""

"""The operator: components for any controller, and the TFJob controller built on them."""

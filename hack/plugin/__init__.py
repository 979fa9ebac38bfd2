"""Generate the plugin's packages for use without pip (platform archives, krew manifest) and its reference page."""

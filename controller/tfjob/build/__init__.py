"""The bodies of a TFJob's children, as they are sent to the API server. Pure, and knows nothing of `decide`.

One module for each kind: `pod`, `service`, `config_map`, `pod_group`. What several kinds need is in `labels`, `references`
and `gang_scheduler`; what is computed for them in `tf_config`, `requests` and `quantities`.
"""

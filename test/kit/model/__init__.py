"""A model of the API server, and of the garbage collector and namespace controller. Provisional, like the whole kit."""

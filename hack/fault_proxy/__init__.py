"""A proxy between a client and a real API server that injects faults.

Tests of the client and of the informers control the proxy request by request. The crash matrix (`test/faults`) uses it to kill
an operator at every write.
"""

from hack.fault_proxy.proxy import Action, Exchange, Matcher, Proxy, Rule, Seen

__all__ = ["Action", "Exchange", "Matcher", "Proxy", "Rule", "Seen"]

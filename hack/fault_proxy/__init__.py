"""A proxy between a client and a real API server, with faults: `proxy` passes requests on, `actions` are what can go wrong.

Tests of the client and of the informers script it request by request; the crash matrix (`test/faults`) kills an operator
behind it at every write.
"""

from hack.fault_proxy.proxy import Action, Exchange, Matcher, Proxy, Rule, Seen

__all__ = ["Action", "Exchange", "Matcher", "Proxy", "Rule", "Seen"]

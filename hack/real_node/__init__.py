"""A real Kubernetes node on this machine, beside the real control plane: scheduler, kubelet, kube-proxy, containerd, DNS.

    python -m hack.real_node run -- COMMAND...      COMMAND, in a sandbox in which a `RealNode` can be started

The sandbox is made of the kernel's own namespaces: network, mounts, processes. So no other program sees the bridges, the
rules of iptables, the mounts and the containers of a node, and when the command ends the kernel removes them all.

Reading order: `__main__`, `machine` (can this machine run a node, and the programs), `sandbox` (made from outside), `inside`
(set up from inside), `node` (for tests), `dns` (names of services).
"""

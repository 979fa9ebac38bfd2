"""A real Kubernetes node on this machine, in addition to the control plane: scheduler, kubelet, kube-proxy, containerd, DNS.

    python -m hack.real_node run -- COMMAND...      run COMMAND in a sandbox in which a `RealNode` can be started

The sandbox consists of network, mount and PID namespaces. Other programs do not see the bridges, iptables rules, mounts and
containers of the node, and the kernel removes them when the command exits.

Reading order: `__main__`, `machine` (requirements and programs), `sandbox` (its setup from outside), `inside` (its setup from
inside), `node` (for tests), `dns` (names of services).
"""

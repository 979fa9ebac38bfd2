"""A real Kubernetes node on this machine, beside the real control plane: scheduler, kubelet, kube-proxy, containerd, DNS.

    python -m hack.real_node run -- COMMAND...      COMMAND, in a sandbox in which a `RealNode` can be started

The sandbox is made of the kernel's own namespaces: network, mounts, processes. So the bridges, the rules of iptables, the
mounts and the containers of a node are nobody else's, and when the command ends the kernel takes them all away.

Reading order: `__main__`, `machine` (can this machine do it), `tools` (the programs), `sandbox` (from outside), `inside`
(from inside), `node` (the library's face), `parts` (command lines and settings), `containers` (containerd), `dns` (names of
services, by a controller on the project's own informers).
"""

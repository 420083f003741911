"""The device plugin: what `gpu-topology serve` tells kubelet of a node's GPUs and of other devices, and hands out.

A backend looks at the node and says which resources there are (`resource`): one for each class of GPUs (`rails`), one
for each that a file describes (`shares`). `process` gives each a socket (`socket`, `rpc`) and looks again every two
seconds, or at once when kubelet starts anew (`inotify`) or a GPU reports an error (`xid`).
"""

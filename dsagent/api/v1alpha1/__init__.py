"""The Kubernetes objects of group dsagent.io, version v1alpha1: one module an object.

What is read may have fields that are not known here: they are dropped. What is written leaves out what is None.
"""

"""The cluster's numbers of rails, as dsagent's controller writes them: a ConfigMap from numbers to subnets.

data:
  "1": 10.1.0.0/24
  "2": 10.2.0.0/24
"""

from collections.abc import Mapping

from gpu_topology.cluster.client import NOT_FOUND, ApiError, ApiServer, Object, name_in_path


def read_numbers(api: ApiServer, namespace: str, name: str) -> Mapping[str, int]:
    """By subnet; none before there is such an object. Raises ApiError."""
    path = f"/api/v1/namespaces/{name_in_path(namespace)}/configmaps/{name_in_path(name)}"
    try:
        return numbers_of(api.get(path))
    except ApiError as error:
        if error.status == NOT_FOUND:
            return {}
        raise


def numbers_of(config_map: Object) -> Mapping[str, int]:
    """What it says; keys that are no number are left out, and of two numbers of a subnet the lower holds."""
    data = config_map.get("data") or {}
    written = sorted((int(key), subnet) for key, subnet in data.items() if key.isdecimal())
    numbers: dict[str, int] = {}
    for number, subnet in written:
        numbers.setdefault(subnet, number)
    return numbers

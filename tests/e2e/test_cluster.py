"""The cluster itself: pods run on each node, reach the API by its Service and each other across nodes."""

import pytest

from tests.e2e.kube import PYTHON, Namespace, phase, pod
from tools.cluster.layout import API_SERVICE, Cluster

_ASK = f"""
import ssl, urllib.request
token = open("/var/run/secrets/kubernetes.io/serviceaccount/token").read()
authority = ssl.create_default_context(cafile="/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
request = urllib.request.Request("https://{API_SERVICE}/version", headers={{"Authorization": f"Bearer {{token}}"}})
print(urllib.request.urlopen(request, context=authority).read().decode())
"""
_SERVE = "import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=8000)"


@pytest.mark.parametrize("node", ["node1", "node2"])
def test_a_pod_of_each_node_reaches_the_api(namespace: Namespace, node: str) -> None:
    namespace.apply(pod("asks", "python3", "-c", _ASK, image=PYTHON, nodeName=node))
    assert phase(namespace.wait_for_end("asks")) == "Succeeded"
    assert '"v1.34.3"' in namespace.logs("asks", "main")


def test_pods_reach_each_other_across_nodes(namespace: Namespace, cluster: Cluster) -> None:
    namespace.apply(pod("serves", "python3", "-c", _SERVE, image=PYTHON, nodeName="node1"))
    address = namespace.wait_until_running("serves")["status"]["podIP"]
    ask = f"import urllib.request as u; print(u.urlopen('http://{address}:8000/etc/hostname').read().decode())"
    namespace.apply(
        pod("asks", "sh", "-c", f'until python3 -c "{ask}"; do sleep 0.2; done', image=PYTHON, nodeName="node2")
    )
    assert phase(namespace.wait_for_end("asks")) == "Succeeded"
    assert "serves" in namespace.logs("asks", "main")
